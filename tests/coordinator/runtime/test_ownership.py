"""The smaller parts of ownership; what they do together is tried by the simulation and on real processes."""

from rota_coordinator.runtime.ownership import DedupedReporter, Lease


def test_a_lease_runs_from_before_it_was_asked_for() -> None:
    now_ms = 1_000
    lease = Lease(lambda: now_ms, length_ms=3_000)
    assert not lease.runs()
    until_ms = lease.asked()
    now_ms = 2_500  # the answer took its time
    lease.renewed(until_ms)
    assert lease.runs()
    now_ms = 3_999
    assert lease.runs()
    now_ms = 4_000
    assert not lease.runs()


def test_a_lost_lease_does_not_run() -> None:
    lease = Lease(lambda: 0, length_ms=3_000)
    lease.renewed(lease.asked())
    lease.lost()
    assert not lease.runs()


def test_a_problem_is_reported_once_until_it_is_recovered() -> None:
    said: list[str] = []
    reporter = DedupedReporter(said.append)
    for _ in range(3):
        reporter.failed("slot 7", OSError("no disk"))
    reporter.recovered("slot 7")
    reporter.recovered("slot 7")
    reporter.failed("slot 7", OSError("no disk"))
    assert said == ["slot 7: no disk; retrying", "slot 7: recovered", "slot 7: no disk; retrying"]
