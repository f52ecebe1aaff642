"""Credit on its way: how much is passed on, and when."""

from rota_sidecar.application.allowance import UNSENT_BYTES_MAX, Allowance


def test_credit_for_few_records_is_passed_on_at_once() -> None:
    allowance = Allowance()
    allowance.grant(100)
    assert allowance.release() == 100
    assert allowance.release() == 0


def test_no_more_is_passed_on_than_may_wait_to_be_sent() -> None:
    allowance = Allowance()
    allowance.grant(1_000_000)
    first = allowance.release()
    assert first == UNSENT_BYTES_MAX // 1_024
    allowance.dispatched(first, UNSENT_BYTES_MAX)
    assert allowance.release() == 0
    allowance.sent(UNSENT_BYTES_MAX // 2)
    assert allowance.release() == first // 2


def test_how_large_records_are_is_learned_from_the_last_ones() -> None:
    allowance = Allowance()
    allowance.grant(1_000_000)
    first = allowance.release()
    allowance.dispatched(first, first * 100)
    allowance.sent(first * 100)
    assert allowance.release() == UNSENT_BYTES_MAX // 100


def test_one_record_at_a_time_goes_however_large_it_is() -> None:
    allowance = Allowance()
    allowance.grant(3)
    assert allowance.release() == 3
    allowance.dispatched(1, 10 * UNSENT_BYTES_MAX)
    allowance.grant(5)
    assert allowance.release() == 0
    allowance.dispatched(2, 20 * UNSENT_BYTES_MAX)
    allowance.sent(30 * UNSENT_BYTES_MAX)
    assert allowance.release() == 1


def test_what_is_open_is_what_may_still_come() -> None:
    allowance = Allowance()
    allowance.grant(20_000)
    allowance.release()
    assert allowance.outstanding == 20_000
    allowance.dispatched(5_000, 5_000)
    assert allowance.outstanding == 15_000
