"""A rejected Fleet stream is one log record, and a flood of them is not a flood of records."""

from rota_operator.cluster.rejection_limit import RECORDS_MAX, WINDOW_S, RejectionLimit


def test_the_first_rejections_are_logged_each() -> None:
    limit = RejectionLimit()
    assert [limit.admit(100.0 + each) for each in range(RECORDS_MAX)] == [0] * RECORDS_MAX


def test_more_are_counted_in_the_next_record() -> None:
    limit = RejectionLimit()
    for _ in range(RECORDS_MAX):
        limit.admit(100.0)
    assert [limit.admit(100.0 + WINDOW_S / 2) for _ in range(7)] == [None] * 7
    assert limit.admit(100.0 + WINDOW_S) == 7
    assert limit.admit(100.0 + WINDOW_S) == 0


def test_no_window_has_more_records_than_the_limit() -> None:
    limit = RejectionLimit()
    logged = [each / 10 for each in range(5_000) if limit.admit(each / 10) is not None]
    assert all(later - first >= WINDOW_S for first, later in zip(logged, logged[RECORDS_MAX:], strict=False))
    assert len(logged) > 5 * RECORDS_MAX
