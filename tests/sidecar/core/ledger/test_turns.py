"""Dispatches after a RETRY have a higher turn than those that were on their way."""

from rota_sidecar.core.ledger.rules import Rules, Verdict
from tests.sidecar.core.ledger.steps import ack, batch, bury, listed, opened, refused, retry, take

AT_ONCE = Rules(backoff_ms=0)


def test_what_comes_again_after_a_retry_comes_in_the_next_turn() -> None:
    ledger = opened(AT_ONCE, batch(0, 4))
    (first,) = ledger.take(100, 1, 0, alone=False)
    assert first.turn == 0
    retry(ledger, 1)
    again = ledger.take(100, 1, 0, alone=False)
    assert [offset for offset, _ in listed(again)] == [1, 2, 3]
    assert {dispatch.turn for dispatch in again} == {1}


def test_so_does_what_lay_behind_a_record_that_never_comes_again() -> None:
    ledger = opened(Rules(retries=0, has_dead_letters=True), batch(0, 4))
    take(ledger)
    retry(ledger, 1)
    again = ledger.take(100, 1, 0, alone=False)
    assert [offset for offset, _ in listed(again)] == [2, 3]
    assert {dispatch.turn for dispatch in again} == {1}


def test_other_verdicts_and_a_retry_that_is_refused_begin_no_turn() -> None:
    ledger = opened(Rules(has_dead_letters=True), batch(0, 5))
    take(ledger, 3)
    ack(ledger, 0)
    bury(ledger, 1)
    refused(ledger, 0, verdict=Verdict.RETRY)
    (dispatch,) = ledger.take(100, 1, 0, alone=False)
    assert dispatch.turn == 0
