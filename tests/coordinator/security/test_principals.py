"""The tokens file names principals and their rights: its format, and the entries that are refused."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from typing_extensions import override

from rota_coordinator.core.group.answers import Request
from rota_coordinator.security.access_control import ACTIONS
from rota_coordinator.security.authenticator import (
    AnonymousAuthenticator,
    Authenticator,
    CertificateAuthenticator,
    Peer,
    Principal,
    TokensAuthenticator,
    digest_of,
)
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.security.policy import Action, AllowAll, GrantPolicy, TopicAction
from rota_coordinator.security.principals import Principals, parse
from rota_coordinator.security.rejection_log import RejectionLog
from rota_coordinator.security.tokens_file import FILE_BYTES_MAX, TokensFile
from rota_service.token_review import Unauthenticated

SECRET = "correct-horse-battery"
HASHED = f"sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}"


def principals(*lines: str) -> Principals:
    return parse("\n".join(lines), "tokens")


def allowed(known: Principals, name: str, group_id: str) -> set[Action]:
    policy = GrantPolicy(known.grants_of)
    return {action for action in Action if policy.may(Principal(name), action, group_id)}


class Shown(Peer):
    """A caller of a test."""

    def __init__(self, *authorization: str, names: Sequence[str] = ()) -> None:
        self._authorization = authorization
        self._names = names

    @override
    def authorization(self) -> Sequence[str]:
        return self._authorization

    @override
    def certificate_names(self) -> Sequence[str]:
        return self._names

    @override
    def address(self) -> str:
        return "ipv4:127.0.0.1"


def who(authenticator: Authenticator, peer: Peer) -> str:
    return asyncio.run(authenticator.authenticate(peer)).name


def refusal(authenticator: Authenticator, peer: Peer) -> str:
    with pytest.raises(Unauthenticated) as refused:
        asyncio.run(authenticator.authenticate(peer))
    return str(refused.value)


def test_a_principal_may_do_what_was_granted_and_nothing_else() -> None:
    known = principals(f"shop {HASHED} shop.* read:bill admin:stock.main")
    for group_id, most in {
        "shop.orders": Action.MEMBER,
        "bill": Action.READ,
        "stock.main": Action.ADMIN,
    }.items():
        assert allowed(known, "shop", group_id) == {action for action in Action if action <= most}
    for foreign in ("", "shop", "bill2", "stock.main2", "SHOP.orders", "*", "other"):
        assert allowed(known, "shop", foreign) == set()
    assert allowed(known, "nobody", "shop.orders") == set()


def test_a_principal_without_grants_may_nothing() -> None:
    assert allowed(principals(f"shop {HASHED}"), "shop", "shop.orders") == set()


def test_the_widest_of_several_rights_counts() -> None:
    known = principals(f"a {HASHED} read:* admin:x.*")
    assert allowed(known, "a", "x.1") == set(Action)
    assert allowed(known, "a", "y") == {Action.READ}


def test_a_colon_that_follows_no_right_belongs_to_the_name() -> None:
    known = principals(f"a {HASHED} team:orders member:read:x")
    assert allowed(known, "a", "team:orders") == allowed(known, "a", "read:x") == {Action.READ, Action.MEMBER}
    assert allowed(known, "a", "orders") == allowed(known, "a", "x") == set()


def test_callers_that_are_turned_away_are_reported_now_and_then() -> None:
    said: list[str] = []
    turned_away = RejectionLog(said.append, "calls were refused")
    for now_s in (100, 100, 105, 109, 110, 111, 200):
        turned_away.add("ipv4:10.0.0.1:1", "unknown token", now_s)
    counts = [int(message.split()[0]) for message in said]
    assert counts == [1, 4, 2]


def test_every_request_about_a_group_needs_a_right() -> None:
    assert set(ACTIONS) == set(get_args(Request))


def test_comments_and_empty_lines_are_passed_over() -> None:
    known = principals("# who", "", f"  shop\t{HASHED} g#1\r", "   # more")
    assert set(known.by_name) == {"shop"}
    assert allowed(known, "shop", "g#1")


def test_a_token_is_known_as_it_is_and_by_its_hash() -> None:
    known = principals(f"hashed {HASHED},plain:next-one", "plain plain:another")
    assert known.with_token(digest_of(SECRET)) == "hashed"
    assert known.with_token(digest_of("next-one")) == "hashed"
    assert known.with_token(digest_of("another")) == "plain"
    for wrong in ("", SECRET + "x", SECRET[:-1], HASHED, HASHED.removeprefix("sha256:")):
        assert known.with_token(digest_of(wrong)) is None


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("shop", "has no credentials"),
        ("shop correct-horse", "credentials must be sha256:HEX"),
        ("shop plain:", "credentials must be sha256:HEX"),
        (f"shop {HASHED},", "credentials must be sha256:HEX"),
        ("shop sha256:abc", "must be followed by 64 hexadecimal digits"),
        (f"shop {HASHED}0", "must be followed by 64 hexadecimal digits"),
        ("shop.* certificate", "invalid principal name shop.*"),
        (f"first {HASHED}", "have the same token"),
        (
            "shop service-account",
            "shop is not the name of a service account; write system:serviceaccount:NAMESPACE:NAME",
        ),
        ("system:serviceaccount:shop service-account", "is not the name of a service account"),
        ("system:serviceaccounts:a:b service-account", "is not the name of a service account"),
        ("first plain:other", "is on an earlier line too"),
        (f"shop certificate {'x' * 250}", "1 to 249 characters"),
        ("shop certificate read:", "1 to 249 characters"),
        ("shop certificate a*b", "is allowed as the last character only"),
        ("shop certificate **", "is allowed as the last character only"),
    ],
)
def test_a_mistake_is_refused_with_its_line(line: str, mistake: str) -> None:
    # A line that starts with "first" repeats the token of the one before, or its name.
    before = "first" if line.startswith("first plain") else "zero"
    with pytest.raises(SecurityError, match=f"^tokens, line 3: .*{mistake}") as refused:
        principals("# who", f"{before} {HASHED} *", line, "ok certificate")
    assert "correct-horse" not in str(refused.value), "a mistake in a secret must not show the secret"


def test_a_file_without_principals_is_refused() -> None:
    with pytest.raises(SecurityError, match="the file has no principals"):
        principals("# nobody yet", "")


def test_a_caller_is_known_by_its_token() -> None:
    known = TokensAuthenticator(principals(f"shop {HASHED}", "pod certificate"))
    assert who(known, Shown(f"Bearer {SECRET}")) == "shop"
    assert who(known, Shown(f"bearer  {SECRET} ")) == "shop"
    assert "send the metadata" in refusal(known, Shown())
    assert "unknown token" in refusal(known, Shown("Bearer wrong"))
    for odd in ("", SECRET, "Bearer", "Bearer ", f"Basic {SECRET}"):
        assert "must have the form" in refusal(known, Shown(odd))
    assert "send exactly one" in refusal(known, Shown(f"Bearer {SECRET}", f"Bearer {SECRET}"))


def test_a_refusal_does_not_repeat_the_token() -> None:
    assert "hunter2" not in refusal(
        TokensAuthenticator(principals(f"shop {HASHED}")), Shown("Bearer hunter2")
    )


def test_a_caller_is_known_by_its_certificate_if_its_line_says_so() -> None:
    known = TokensAuthenticator(principals(f"shop {HASHED}", f"pod certificate,plain:{SECRET}2"))
    assert who(known, Shown(names=["10.0.0.1", "pod"])) == "pod"
    # A certificate that carries the name of somebody who has a token only is nobody's.
    assert "send the metadata" in refusal(known, Shown(names=["shop"]))
    # A wrong token is not made good by a right certificate.
    assert "unknown token" in refusal(known, Shown("Bearer wrong", names=["pod"]))
    assert who(known, Shown(f"Bearer {SECRET}", names=["pod"])) == "shop"


def test_without_a_file_a_certificate_is_enough() -> None:
    assert (
        who(CertificateAuthenticator(), Shown(names=["spiffe://rota/shop", "other"])) == "spiffe://rota/shop"
    )
    assert "has no name" in refusal(CertificateAuthenticator(), Shown())


def test_without_anything_everybody_may_everything() -> None:
    principal = asyncio.run(AnonymousAuthenticator().authenticate(Shown("Bearer whatever")))
    assert all(AllowAll().may(principal, action, "any") for action in Action)


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def test_the_file_is_read_again_when_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    said: list[str] = []
    write(path, f"shop {HASHED} shop.*\n")
    tokens = TokensFile(path, said.append)
    tokens.reload_if_changed()
    assert said == []
    path.write_text("shop plain:another shop.* bill.*\n")
    tokens.reload_if_changed()
    assert tokens.with_token(digest_of(SECRET)) is None
    assert tokens.with_token(digest_of("another")) == "shop"
    assert GrantPolicy(tokens.grants_of).may(Principal("shop"), Action.MEMBER, "bill.x")
    assert said == [f"{path} was reloaded"]


@pytest.mark.parametrize("becomes", ["shop hunter2 *\n", None])
def test_a_file_that_becomes_wrong_changes_nothing_and_is_reported_once(
    tmp_path: Path, becomes: str | None
) -> None:
    path = tmp_path / "tokens"
    said: list[str] = []
    write(path, f"shop {HASHED} shop.*\n")
    tokens = TokensFile(path, said.append)
    if becomes is None:
        path.unlink()
    else:
        write(path, becomes)
    for _ in range(3):
        tokens.reload_if_changed()
    assert tokens.with_token(digest_of(SECRET)) == "shop"
    (message,) = said
    assert "the previous contents stay in effect" in message
    assert "hunter2" not in message
    write(path, "shop plain:another\n")
    tokens.reload_if_changed()
    assert said[1:] == [f"{path} was reloaded"]


def test_a_file_that_everybody_can_read_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    said: list[str] = []
    path.write_text(f"shop {HASHED}\n")
    path.chmod(0o644)
    TokensFile(path, said.append)
    (warning,) = said
    assert "is readable by every user" in warning


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        (f"shop {HASHED}\n\xff".encode("latin-1"), "line 2: not valid UTF-8"),
        (b"#" * (FILE_BYTES_MAX + 1), "at most"),
        (b"", "no principal"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused(tmp_path: Path, content: bytes, mistake: str) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SecurityError, match=mistake):
        TokensFile(path, pytest.fail)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="No such file"):
        TokensFile(tmp_path / "none", pytest.fail)


def test_rights_to_topics_and_transactional_ids_are_granted_by_name_too() -> None:
    known = parse(
        "shop plain:a shop.* consume:orders produce:bill* topics:tmp.* transactional:shop-*\n"
        "other plain:b orders",
        "tokens",
    )
    policy, shop, other = GrantPolicy(known.grants_of), Principal("shop"), Principal("other")
    may = [action for action in TopicAction if policy.may_topic(shop, action, "orders")]
    assert may == [TopicAction.CONSUME]
    may = [action for action in TopicAction if policy.may_topic(shop, action, "bills")]
    assert may == [TopicAction.CONSUME, TopicAction.PRODUCE]
    assert all(policy.may_topic(shop, action, "tmp.x") for action in TopicAction)
    assert policy.may_transact(shop, "shop-1")
    assert not policy.may_transact(shop, "other-1")
    # A right to a group is none to a topic of its name, and the other way round.
    assert policy.may(other, Action.MEMBER, "orders")
    assert not any(policy.may_topic(other, action, "orders") for action in TopicAction)
    assert not policy.may(shop, Action.READ, "orders")
    assert not policy.may_transact(other, "orders")
    assert not policy.may_topic(Principal("nobody"), TopicAction.CONSUME, "orders")
