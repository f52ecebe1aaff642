"""The time of a partition's last progress stands still while records wait, and only then."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.observability.progress import ProgressTimes

ORDERS_0, ORDERS_1 = Partition("orders", 0), Partition("orders", 1)
TENURE = Tenure(1, "m", 1, 1)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def assigned_to(clock: Clock) -> ProgressTimes:
    progress = ProgressTimes(clock)
    progress.on_event(on.Assigned(TENURE, frozenset({ORDERS_0, ORDERS_1})), 0)
    return progress


def test_it_begins_with_the_assignment_and_ends_with_the_partition() -> None:
    clock = Clock()
    progress = assigned_to(clock)
    clock.now_ms = 2_000
    assert progress.observe(ORDERS_0, None, is_done=False) == 1_000
    progress.on_event(on.Revoked(frozenset({ORDERS_0})), 0)
    assert progress.observe(ORDERS_0, 7, is_done=True) is None
    progress.on_event(on.Lost(frozenset({ORDERS_1}), "gone"), 0)
    assert progress.observe(ORDERS_1, 7, is_done=True) is None


def test_a_verdict_is_progress_of_its_partition_alone() -> None:
    clock = Clock()
    progress = assigned_to(clock)
    clock.now_ms = 2_000
    progress.on_actions([do.Settled(ORDERS_0, "ack", 1)], 0, 0)
    clock.now_ms = 3_000
    assert progress.observe(ORDERS_0, None, is_done=False) == 2_000
    assert progress.observe(ORDERS_1, None, is_done=False) == 1_000
    progress.on_actions([do.Settled(Partition("other", 0), "ack", 1)], 0, 0)
    assert progress.observe(Partition("other", 0), None, is_done=False) is None


def test_an_advance_of_the_commit_is_progress_and_learning_it_is_none() -> None:
    clock = Clock()
    progress = assigned_to(clock)
    for now_ms, committed, expected_ms in (
        (2_000, 5, 1_000),
        (3_000, 5, 1_000),
        (4_000, None, 1_000),
        (5_000, 6, 5_000),
        (6_000, 2, 5_000),
        (7_000, 3, 7_000),
    ):
        clock.now_ms = now_ms
        assert progress.observe(ORDERS_0, committed, is_done=False) == expected_ms


def test_without_records_to_process_nothing_stands_still_however_long() -> None:
    clock = Clock()
    progress = assigned_to(clock)
    clock.now_ms = 3_600_000
    assert progress.observe(ORDERS_0, 5, is_done=True) == 3_600_000
    clock.now_ms = 3_660_000
    assert progress.observe(ORDERS_0, 5, is_done=False) == 3_600_000, "records wait since then"
