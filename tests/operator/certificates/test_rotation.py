"""Which certificates are due, by what exists and the time."""

import pytest

from rota_operator.certificates.rotation import (
    ANNOUNCE_S,
    AUTHORITY_DAYS,
    DAY_S,
    SUCCEED_BEFORE_S,
    AuthorityStep,
    Certificate,
    authority_step,
    renewal_reason,
)

NAMES = frozenset({"rota-operator.rota"})
LIFE_S = 90 * DAY_S
AUTHORITY_S = AUTHORITY_DAYS * DAY_S
BORN_S = 1_700_000_000


def valid(from_s: int, life_s: int = AUTHORITY_S, names: frozenset[str] = frozenset()) -> Certificate:
    return Certificate(from_s, from_s + life_s, names)


def test_an_authority_lives_through_its_steps() -> None:
    now = BORN_S
    assert authority_step(None, None, now) is AuthorityStep.CREATE
    first = valid(now)
    assert authority_step(first, None, now) is AuthorityStep.KEEP
    now = first.not_after_s - SUCCEED_BEFORE_S
    assert authority_step(first, None, now) is AuthorityStep.KEEP
    now += 1
    assert authority_step(first, None, now) is AuthorityStep.ANNOUNCE
    second = valid(now)
    assert authority_step(first, second, now + ANNOUNCE_S - 1) is AuthorityStep.KEEP
    assert authority_step(first, second, now + ANNOUNCE_S) is AuthorityStep.SUCCEED
    assert authority_step(second, None, now + ANNOUNCE_S) is AuthorityStep.KEEP


def test_an_authority_that_has_expired_is_created_anew() -> None:
    first = valid(BORN_S)
    assert authority_step(first, None, first.not_after_s) is AuthorityStep.CREATE


def test_an_authority_outlives_what_it_has_issued() -> None:
    longest_s = 825 * DAY_S
    assert longest_s + ANNOUNCE_S < SUCCEED_BEFORE_S


@pytest.mark.parametrize(
    ("certificate", "issued_by_authority", "age_s", "reason"),
    [
        (None, False, 0, "there is none"),
        (valid(BORN_S, LIFE_S, NAMES), True, 0, ""),
        (valid(BORN_S, LIFE_S, NAMES), True, LIFE_S * 2 // 3, ""),
        (valid(BORN_S, LIFE_S, NAMES), True, LIFE_S * 2 // 3 + 1, "it expires"),
        (valid(BORN_S, LIFE_S, NAMES), True, LIFE_S * 2, "it expires"),
        (valid(BORN_S, LIFE_S, NAMES | {"more"}), True, 0, "its names have changed"),
        (valid(BORN_S, LIFE_S, NAMES), False, 0, "another authority issues"),
    ],
)
def test_a_certificate_is_issued_when_it_is_due(
    certificate: Certificate | None, issued_by_authority: bool, age_s: int, reason: str
) -> None:
    found = renewal_reason(
        certificate, NAMES, is_issued_by_authority=issued_by_authority, now_s=BORN_S + age_s
    )
    assert found == reason
