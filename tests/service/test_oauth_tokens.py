"""Bearer tokens: what is a usable one, how long it is used, and when a new one is due. No clock, no network."""

import math

import pytest

from rota_service.oauth_tokens import (
    LIFETIME_MAX_S,
    LIFETIME_MIN_S,
    RETRY_S,
    HeldToken,
    Need,
    NoToken,
    Token,
    may_attempt,
    need,
    parse_token,
)
from tests.support.kafka.oauth import jwt

NOW_S = 1_000_000.0
SOURCE = "the token file /token"


def failure(text: str, expires_in_s: float | None = None) -> NoToken:
    with pytest.raises(NoToken) as failed:
        parse_token(text, SOURCE, NOW_S, expires_in_s)
    assert str(failed.value).startswith(SOURCE)
    return failed.value


def test_a_jwt_says_its_subject_and_its_life() -> None:
    assert parse_token(jwt(sub="orders", exp=NOW_S + 600), SOURCE, NOW_S) == Token(
        jwt(sub="orders", exp=NOW_S + 600), "orders", 600
    )


def test_the_life_that_an_endpoint_states_precedes_the_claim() -> None:
    """A stated life needs no clock: with a clock that is wrong by a day tokens are still renewed in time."""
    token = jwt(exp=NOW_S - 86_400)
    assert parse_token(token, SOURCE, NOW_S, 300).lifetime_s == 300


def test_an_opaque_token_is_used_if_its_life_is_stated() -> None:
    assert parse_token("opaque", SOURCE, NOW_S, 300) == Token("opaque", "", 300)
    assert "has a token without an expiry; expected a JWT with the claim exp" in str(failure("opaque"))


@pytest.mark.parametrize("claims", [{}, {"exp": "soon"}, {"exp": True}, {"exp": None}])
def test_a_jwt_without_an_expiry_is_refused_and_does_not_heal(claims: dict[str, object]) -> None:
    assert not failure(jwt(**claims)).may_heal


@pytest.mark.parametrize("text", ["a.b.c", "a.!!!.c", "a.e30.c", f"a.{'W1td' * 10}.c", "..."])
def test_a_text_that_only_looks_like_a_jwt_has_no_expiry(text: str) -> None:
    assert isinstance(failure(text), NoToken)


@pytest.mark.parametrize(
    "text", ["", "two tokens", "a\nb", "tök", "a\1b", "x" * 100_000, "=", "a=b"], ids=lambda text: text[:10]
)
def test_other_texts_are_no_tokens_and_may_heal(text: str) -> None:
    wrong = failure(text)
    assert "has no bearer token; expected one token, and nothing else" in str(wrong)
    assert wrong.may_heal
    assert not text or text not in str(wrong)


def test_an_expired_token_is_refused_if_it_is_more_than_the_difference_of_two_clocks() -> None:
    wrong = failure(jwt(exp=NOW_S - 31))
    assert "expired 31 s ago; renew it, and check the clock of this machine" in str(wrong)
    assert wrong.may_heal
    assert parse_token(jwt(exp=NOW_S - 29), SOURCE, NOW_S).lifetime_s == LIFETIME_MIN_S


def test_a_life_is_bounded() -> None:
    assert parse_token("t", SOURCE, NOW_S, 1e300).lifetime_s == LIFETIME_MAX_S
    assert parse_token("t", SOURCE, NOW_S, 0).lifetime_s == LIFETIME_MIN_S
    assert isinstance(failure("t", math.nan), NoToken)


def test_a_token_is_renewed_at_80_percent_of_its_life() -> None:
    held = HeldToken(Token("t", "", 100), obtained_s=1000)
    assert [need(held, now_s) for now_s in (1000, 1079.9, 1080, 1099.9, 1100)] == [
        Need.NONE,
        Need.NONE,
        Need.RENEW,
        Need.RENEW,
        Need.OBTAIN,
    ]
    assert need(None, 1000) is Need.OBTAIN


@pytest.mark.parametrize("what", Need)
def test_a_failure_is_followed_by_a_pause(what: Need) -> None:
    due = what is not Need.NONE
    assert may_attempt(what, None, 0) is due
    assert may_attempt(what, 100, 100 + RETRY_S - 0.1) is False
    assert may_attempt(what, 100, 100 + RETRY_S) is due


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(HeldToken(Token("secret", "orders", 100), 0))
