"""A token is believed for as long as the API server's answer says, and not longer than the token's own time."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from rota_service.pod_tokens import (
    CACHE_S,
    KNOWN_MAX,
    POD_NAME,
    POD_UID,
    REJECTED_MAX,
    REJECTED_S,
    InvalidToken,
    KnownTokens,
    Pod,
    RejectedTokens,
    audiences_of,
    digest_of,
    expiry_of,
    pod_of,
)

NOW = 1_000.0
USER = {
    "username": "system:serviceaccount:shop:orders",
    "extra": {POD_NAME: ["orders-0"], POD_UID: ["11-22"]},
}
STATUS = {"authenticated": True, "audiences": ["rota"], "user": USER}


def test_the_pod_is_read_from_the_review() -> None:
    assert pod_of(STATUS) == Pod("shop", "orders-0", "11-22", "orders")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "the API server rejects the token (unknown token)"),
        ({"authenticated": False, "error": "token has expired"}, "rejects the token (token has expired)"),
        ({"authenticated": "true", "audiences": ["rota"], "user": USER}, "rejects the token"),
        ({**STATUS, "audiences": ["https://kubernetes.default.svc"]}, "not for the audience 'rota'"),
        ({**STATUS, "audiences": []}, "not for the audience 'rota'"),
        ({"authenticated": True, "user": USER}, "not for the audience 'rota'"),
        ({**STATUS, "user": {}}, "does not belong to a service account"),
        ({**STATUS, "user": {**USER, "username": "admin"}}, "does not belong to a service account"),
        ({**STATUS, "user": {**USER, "username": "system:serviceaccount:a:b:c"}}, "a service account"),
        ({**STATUS, "user": {**USER, "extra": {}}}, "not bound to a pod"),
        ({**STATUS, "user": {**USER, "extra": None}}, "not bound to a pod"),
        ({**STATUS, "user": {**USER, "extra": {POD_NAME: ["orders-0"]}}}, "not bound to a pod"),
        ({**STATUS, "user": {**USER, "extra": {POD_NAME: ["a", "b"], POD_UID: ["1"]}}}, "not bound to a pod"),
        ({**STATUS, "user": {**USER, "extra": {POD_NAME: "orders-0", POD_UID: "1"}}}, "not bound to a pod"),
    ],
)
def test_other_tokens_are_refused_with_the_reason(status: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidToken, match=re.escape(message)):
        pod_of(status)


def jwt(claims: object) -> str:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"header.{middle}.signature"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (jwt({"exp": 1_700_000_000}), 1_700_000_000),
        (jwt({"exp": 1.5, "padding": "x"}), 1.5),
        (jwt({}), None),
        (jwt({"exp": "soon"}), None),
        (jwt({"exp": True}), None),
        (jwt({"exp": float("nan")}), None),
        (jwt({"exp": float("inf")}), None),
        (jwt([]), None),
        ("opaque", None),
        ("", None),
        ("a.%%%.c", None),
        ("a.é.c", None),
        ("a.YQ.c", None),
        ("a.b.c.d", None),
        ("a." + base64.urlsafe_b64encode(b"[" * 5_000).decode().rstrip("=") + ".c", None),
    ],
)
def test_the_expiry_of_a_token(token: str, expected: float | None) -> None:
    assert expiry_of(token) == expected


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (jwt({"aud": ["rota-page", "other"]}), ("rota-page", "other")),
        (jwt({"aud": "rota-page"}), ("rota-page",)),
        (jwt({"aud": [1, None]}), ()),
        (jwt({}), ()),
        (jwt(["rota-page"]), ()),
        ("opaque", ()),
        ("a.%.c", ()),
    ],
)
def test_the_audiences_of_a_token(token: str, expected: tuple[str, ...]) -> None:
    assert audiences_of(token) == expected


def test_tokens_are_kept_as_digests() -> None:
    assert len(digest_of("secret")) == 32
    assert digest_of("\ud800") != digest_of("secret"), "whatever the metadata contains"


def add(known: KnownTokens[str], digest: bytes, pod: Pod, expires_in_s: float | None, now_s: float) -> None:
    known.add(digest, pod, pod.service_account, expires_in_s, now_s)


def pod(name: str = "orders-0", uid: str = "1") -> Pod:
    return Pod("shop", name, uid, "orders")


@pytest.mark.parametrize(
    ("expires_in_s", "after_s", "is_fresh", "is_usable"),
    [
        (3_600, 0, True, True),
        (3_600, CACHE_S - 0.1, True, True),
        (3_600, CACHE_S, False, True),
        (3_600, 3_599, False, True),
        (3_600, 3_600, False, False),
        (10, 9.9, True, True),
        (10, 10, False, False),
        (0, 0, False, False),
        (-5, 0, False, False),
        (None, CACHE_S - 0.1, True, True),
        (None, CACHE_S, False, False),
    ],
)
def test_for_how_long_a_token_is_known(
    expires_in_s: float | None, after_s: float, is_fresh: bool, is_usable: bool
) -> None:
    known: KnownTokens[str] = KnownTokens()
    add(known, b"1", pod(), expires_in_s, NOW)
    assert (known.fresh(b"1", NOW + after_s) is not None) == is_fresh
    assert (known.usable(b"1", NOW + after_s) is not None) == is_usable


def test_a_rejected_token_is_forgotten() -> None:
    known: KnownTokens[str] = KnownTokens()
    add(known, b"1", pod(), 3_600, NOW)
    known.remove(b"1")
    known.remove(b"never seen")
    assert known.usable(b"1", NOW) is None


def test_a_token_of_the_previous_pod_of_this_name_is_not_known_any_more() -> None:
    known: KnownTokens[str] = KnownTokens()
    add(known, b"1", pod(uid="1"), 3_600, NOW)
    add(known, b"2", pod(uid="2"), 3_600, NOW)
    assert known.usable(b"1", NOW) is None
    assert known.usable(b"2", NOW) is not None


def test_a_pod_may_have_an_old_and_a_new_token() -> None:
    known: KnownTokens[str] = KnownTokens()
    add(known, b"1", pod(), 60, NOW)
    add(known, b"2", pod(), 3_600, NOW)
    assert known.fresh(b"1", NOW) is not None
    assert known.fresh(b"2", NOW) is not None


def test_known_tokens_are_bounded_and_expired_ones_go_first() -> None:
    known: KnownTokens[str] = KnownTokens()
    for number in range(KNOWN_MAX):
        expires_in_s = 1 if number % 2 else 3_600
        add(known, digest_of(str(number)), pod(f"orders-{number}"), expires_in_s, NOW)
    add(known, b"one more", pod("one-more"), 3_600, NOW + 2)
    assert len(known) == KNOWN_MAX // 2 + 1
    assert known.usable(digest_of("0"), NOW + 2) is not None


def test_without_expired_tokens_those_go_that_were_not_used() -> None:
    known: KnownTokens[str] = KnownTokens()
    for number in range(KNOWN_MAX):
        add(known, digest_of(str(number)), pod(f"orders-{number}"), 3_600, NOW)
    assert known.fresh(digest_of("0"), NOW) is not None
    add(known, b"one more", pod("one-more"), 3_600, NOW)
    assert len(known) <= KNOWN_MAX
    assert known.usable(digest_of("0"), NOW) is not None, "it was used just now"
    assert known.usable(digest_of("1"), NOW) is None
    assert known.usable(b"one more", NOW) is not None


def test_a_rejected_token_is_known_for_a_moment() -> None:
    rejected = RejectedTokens()
    rejected.add(b"1", "unknown token", NOW)
    assert rejected.reason(b"1", NOW + REJECTED_S - 0.1) == "unknown token"
    assert rejected.reason(b"1", NOW + REJECTED_S) == ""
    assert rejected.reason(b"2", NOW) == ""


def test_rejected_tokens_are_bounded() -> None:
    rejected = RejectedTokens()
    for number in range(REJECTED_MAX + 10):
        rejected.add(digest_of(str(number)), "unknown token", NOW)
    assert len(rejected) == REJECTED_MAX
    assert rejected.reason(digest_of("9"), NOW) == ""
    assert rejected.reason(digest_of("10"), NOW) == "unknown token"


def test_tokens_with_a_common_beginning_are_different_ones() -> None:
    known: KnownTokens[str] = KnownTokens()
    add(known, digest_of("token"), pod(), 3_600, NOW)
    for other in ("token ", "token\0", "toke", "TOKEN"):
        assert known.usable(digest_of(other), NOW) is None
