"""Counters and metrics: lag, its age, the time in the application; unknown values are absent, and never zero."""

from collections.abc import Mapping
from typing import cast

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import Columns, pack
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.delivery.states import PartitionView
from rota_sidecar.core.ledger.batches import Batch, BatchSlice, Dispatch
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member import actions as member_do
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.engines.batch_slicing import BatchSlicer
from rota_sidecar.membership.driver import StateChanged
from rota_sidecar.observability.counters import Counters
from rota_sidecar.observability.end_offsets import EndOffset, EndOffsets, Reading
from rota_sidecar.observability.in_flight import InFlightTimer
from rota_sidecar.observability.metrics import GroupOfMetrics, Metrics
from rota_sidecar.observability.partition_status import (
    PartitionStatus,
    is_done,
    merged_bounds,
    partition_statuses,
    timestamp_ms,
)
from rota_sidecar.observability.progress import ProgressTimes
from rota_sidecar.observability.uncommitted import BATCHES_MAX, UncommittedTimestamps

ORDERS_0 = Partition("orders", 0)
TENURE = Tenure(1, "m", 1, 1)
NOTHING = PartitionStatus(
    None,
    None,
    None,
    None,
    None,
    None,
    is_done=False,
    rate=None,
    in_flight=0,
    problem="",
    last_progress_ms=None,
)
LABELS = '{group="g",partition="0",topic="orders"}'


def view(**changes: object) -> PartitionView:
    plain = PartitionView(TENURE, 5, 5, Bounds(0, 5), 0, 0, None, None, "", "")
    return plain._replace(**changes)  # type: ignore[arg-type]


def page(
    status: PartitionStatus, counters: Counters | None = None, now_s: float = 100.0
) -> Mapping[str, float]:
    counters = counters or Counters()
    shown = (
        Metrics(GroupOfMetrics("g"), counters, lambda: [(ORDERS_0, status)], lambda: now_s).page().decode()
    )
    lines = (line.rpartition(" ") for line in shown.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag"),
    [(5, 0, 9, 4), (9, 0, 9, 0), (2, 5, 9, 4), (9, 0, 7, 0), (None, 0, 9, None), (5, None, None, None)],
)
def test_lag_is_counted_from_the_commit_or_the_start_and_is_never_below_zero(
    committed: int | None, start: int | None, end: int | None, lag: int | None
) -> None:
    status = NOTHING._replace(committed=committed, start=start, end=end)
    assert status.lag == lag
    assert page(status).get(f"rota_lag_records{LABELS}") == lag


def test_lag_in_seconds_is_the_age_of_the_first_uncommitted_record() -> None:
    shown = f"rota_lag_seconds{LABELS}"
    lagging = NOTHING._replace(committed=5, start=0, end=9)
    assert page(lagging._replace(uncommitted_ms=40_000, unresolved_ms=90_000))[shown] == 60
    assert page(lagging._replace(uncommitted_ms=140_000))[shown] == 0, "by its producer's clock"
    assert page(lagging._replace(uncommitted_ms=40_000, is_done=True))[shown] == 60, "done, and not committed"
    assert page(lagging._replace(is_done=True))[shown] == 0, "a control marker alone"
    assert page(lagging._replace(committed=9, uncommitted_ms=40_000))[shown] == 0, "all is committed"
    assert shown not in page(lagging), "what was not read yet may be of any age"
    assert shown not in page(NOTHING._replace(uncommitted_ms=40_000)), "nobody knows what is committed"


def test_records_that_are_done_and_not_committed_keep_their_time_until_they_are() -> None:
    uncommitted = UncommittedTimestamps()
    uncommitted.on_actions([timed(0, 10, 1_000), timed(10, 20, 2_000)], 0, 0)
    uncommitted.on_actions([timed(0, 10, 1_000)], 0, 0)
    assert [uncommitted.first_ms(ORDERS_0, offset) for offset in (0, 9, 10, 19)] == [
        1_000,
        1_000,
        2_000,
        2_000,
    ]
    assert uncommitted.first_ms(ORDERS_0, 20) is None, "nothing was delivered behind it"
    uncommitted.on_actions([timed(3, 6, 500, delivery_epoch=2)], 0, 0)
    assert uncommitted.first_ms(ORDERS_0, 3) == 500, "after a seek it begins anew"
    uncommitted.keep([])
    assert uncommitted.first_ms(ORDERS_0, 3) is None


def test_of_too_many_uncommitted_batches_the_last_that_is_remembered_stands_for_later_ones() -> None:
    uncommitted = UncommittedTimestamps()
    uncommitted.on_actions([timed(each, each + 1, each) for each in range(BATCHES_MAX + 5)], 0, 0)
    assert uncommitted.first_ms(ORDERS_0, 7) == 7
    assert uncommitted.first_ms(ORDERS_0, BATCHES_MAX + 3) == BATCHES_MAX - 1


@pytest.mark.parametrize(
    ("committed", "unresolved", "shown_ms"),
    [
        pytest.param(0, 0, 1_500, id="nothing-is-done-behind-the-commit"),
        pytest.param(0, 4, 1_000, id="some-is-done-and-not-committed"),
        pytest.param(0, None, 1_000, id="all-is-done-and-nothing-is-committed"),
        pytest.param(10, None, None, id="all-is-committed"),
        pytest.param(None, 4, None, id="nobody-knows-what-is-committed"),
    ],
)
def test_the_first_uncommitted_record_is_seldom_the_first_that_is_not_done(
    committed: int | None, unresolved: int | None, shown_ms: int | None
) -> None:
    batch = Batch(0, 10, 1, log_pb2.RecordBatch(base_timestamp_ms=1_500, max_timestamp_ms=1_500))
    first = None if unresolved is None else (batch, unresolved)
    seen = view(position=10, committed=committed, first_unresolved=first, bounds=Bounds(0, 10))
    uncommitted = UncommittedTimestamps()
    uncommitted.on_actions([timed(0, 10, 1_000)], 0, 0)
    ((_, found),) = partition_statuses(
        {ORDERS_0: seen},
        cast("EndOffsets", NeverLooked()),
        BatchSlicer(),
        uncommitted,
        ProgressTimes(lambda: 0),
    )
    assert found.uncommitted_ms == shown_ms


class NeverLooked:
    """In place of `Ends`."""

    def seen(self, partition: Partition) -> EndOffset | None:
        """Nothing."""


def timed(first: int, end: int, timestamp_ms: int, delivery_epoch: int = 1) -> do.Deliver:
    """A batch with its time, as it is handed over."""
    content = log_pb2.RecordBatch(base_timestamp_ms=timestamp_ms, max_timestamp_ms=timestamp_ms)
    batch = Batch(first, end - first, 1, content)
    return do.Deliver(delivery_epoch, ORDERS_0, TENURE, Dispatch(1, [BatchSlice(batch, first, end)]))


def test_nothing_is_left_only_when_that_was_seen() -> None:
    assert is_done(view(), Bounds(0, 5))
    assert not is_done(view(), None)
    assert not is_done(view(), Bounds(0, 6))
    assert not is_done(view(in_flight=1), Bounds(0, 5))
    assert not is_done(view(waiting=1), Bounds(0, 5))
    assert not is_done(view(position=None), Bounds(0, 5))


def test_ends_are_the_newest_that_were_seen_lately() -> None:
    assert merged_bounds(view(), None) is None
    seen = EndOffset(Bounds(1, 9), 0, Reading(9, 0))
    assert merged_bounds(view(), seen) == Bounds(1, 9)
    assert merged_bounds(view(bounds=Bounds(2, 12)), seen) == Bounds(2, 12)
    assert merged_bounds(view(bounds=None), seen) == Bounds(1, 9)


def test_the_time_of_a_record_is_its_own() -> None:
    payload = pack(Columns(values=[b"a", b"b", b"c"], timestamps_ms=[1_000, 2_000, 3_000]), 3, 1_000)
    content = log_pb2.RecordBatch(
        base_offset=7, base_timestamp_ms=1_000, max_timestamp_ms=3_000, count=3, payload=payload
    )
    batch = Batch(7, 3, len(payload), content)
    assert [timestamp_ms(batch, offset, BatchSlicer()) for offset in (7, 8, 9)] == [1_000, 2_000, 3_000]


def delivery(first: int, end: int, delivery_epoch: int = 1) -> do.Deliver:
    batch = Batch(first, end - first, 1, None)
    return do.Deliver(delivery_epoch, ORDERS_0, TENURE, Dispatch(1, [BatchSlice(batch, first, end)]))


def judgement(first: int, last: int, delivery_epoch: int = 1) -> on.Judgement:
    return on.Judgement(delivery_epoch, ORDERS_0, first, last, Verdict.ACK)


def test_what_was_handed_over_together_takes_until_the_verdict_on_its_last_record() -> None:
    took: list[float] = []
    timer = InFlightTimer(took.append)
    timer.dispatched(delivery(0, 10), 1_000)
    timer.dispatched(delivery(10, 20), 2_000)
    timer.completed([judgement(0, 8)], 2_500)
    assert took == []
    timer.completed([judgement(9, 9)], 3_000)
    timer.completed([judgement(10, 19)], 4_000)
    assert took == [2, 2]
    timer.dispatched(delivery(20, 21), 5_000)
    timer.dispatched(delivery(0, 1, delivery_epoch=2), 6_000)
    timer.completed([judgement(20, 20), judgement(0, 0, delivery_epoch=2)], 7_000)
    assert took == [2, 2, 1], "what was voided by a seek is not measured"


def test_the_application_is_busy_while_it_has_anything() -> None:
    timer = InFlightTimer(lambda _: None)
    assert timer.busy_s(5_000) == 0
    for records, now_ms in ((3, 1_000), (1, 2_000), (0, 3_000), (0, 4_000), (5, 10_000)):
        timer.set_records(records, now_ms)
    assert timer.busy_s(12_000) == 4


def test_a_refused_verdict_is_counted_and_settles_no_record() -> None:
    counters = Counters()
    counters.on_actions(
        [do.Settled(ORDERS_0, "ack", 3), do.Refuse(1, ORDERS_0, 2, "it is already done")], 0, 0
    )
    assert page(NOTHING, counters)['rota_records_total{group="g",topic="orders",verdict="refused"}'] == 1
    assert counters.records_done == 3


@pytest.mark.parametrize(
    ("granularity", "lags", "ages", "progress"),
    [
        ("group", {'{group="g"}': 9}, {'{group="g"}': 60}, {'{group="g"}': 30}),
        (
            "topic",
            {'{group="g",topic="orders"}': 6, '{group="g",topic="paid"}': 3},
            {'{group="g",topic="orders"}': 60, '{group="g",topic="paid"}': 10},
            {'{group="g",topic="orders"}': 30, '{group="g",topic="paid"}': 50},
        ),
    ],
)
def test_at_a_coarser_level_records_are_summed_and_the_worst_time_counts(
    granularity: str, lags: dict[str, float], ages: dict[str, float], progress: dict[str, float]
) -> None:
    statuses = {
        Partition("orders", 0): lagging(4, uncommitted_s=40, progress_s=30),
        Partition("orders", 1): lagging(2, uncommitted_s=80, progress_s=40),
        Partition("paid", 0): lagging(3, uncommitted_s=90, progress_s=50),
    }
    shown = of_partitions(granularity, statuses)
    assert shown == {
        **{f"rota_lag_records{labels}": value for labels, value in lags.items()},
        **{f"rota_lag_seconds{labels}": value for labels, value in ages.items()},
        **{f"rota_last_progress_timestamp_seconds{labels}": value for labels, value in progress.items()},
    }


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    statuses = {
        Partition("orders", 0): lagging(4, uncommitted_s=40, progress_s=30),
        Partition("orders", 1): NOTHING,
        Partition("paid", 0): lagging(3, uncommitted_s=90, progress_s=50),
    }
    assert of_partitions("group", statuses) == {}
    assert of_partitions("topic", statuses).keys() == {
        f'{name}{{group="g",topic="paid"}}'
        for name in ("rota_lag_records", "rota_lag_seconds", "rota_last_progress_timestamp_seconds")
    }


@pytest.mark.parametrize(("granularity", "series"), [("partition", 3_000), ("topic", 3), ("group", 3)])
def test_series_of_a_thousand_partitions_are_bounded_by_the_granularity(
    granularity: str, series: int
) -> None:
    status = lagging(4, uncommitted_s=40, progress_s=30)
    statuses = {Partition("orders", number): status for number in range(1_000)}
    assert len(of_partitions(granularity, statuses)) == series


def test_with_granularity_group_a_sidecar_has_at_most_thirty_series() -> None:
    counters = Counters()
    statuses = {Partition("orders", number): NOTHING for number in range(1_000)}
    counters.on_event(on.Assigned(TENURE, frozenset(statuses)), 0)
    counters.processing_seconds.add(0.2)
    shown = Metrics(GroupOfMetrics("g", "group"), counters, statuses.items, lambda: 100.0).page().decode()
    series = dict(line.rsplit(" ", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert len(series) <= 30
    assert series['rota_processing_seconds_count{group="g"}'] == "1.0"
    assert series['rota_processing_seconds_sum{group="g"}'] == "0.2"


def lagging(records: int, *, uncommitted_s: int, progress_s: int) -> PartitionStatus:
    """A partition with this many uncommitted records."""
    return NOTHING._replace(
        committed=0,
        start=0,
        end=records,
        uncommitted_ms=uncommitted_s * 1_000,
        last_progress_ms=progress_s * 1_000,
    )


def of_partitions(granularity: str, statuses: Mapping[Partition, PartitionStatus]) -> Mapping[str, float]:
    """The series about partitions, at 100 s."""
    of_group = GroupOfMetrics("g", granularity)
    shown = Metrics(of_group, Counters(), statuses.items, lambda: 100.0).page().decode()
    lines = (
        line.rpartition(" ") for line in shown.splitlines() if line.startswith(("rota_lag", "rota_last"))
    )
    return {name: float(value) for name, _, value in lines}


def test_the_first_dead_letter_and_the_first_fenced_heartbeat_are_an_increase() -> None:
    counters = Counters()
    fenced = 'rota_heartbeats_total{group="g",outcome="FENCED_INSTANCE_ID"}'
    dead = 'rota_records_total{group="g",topic="orders",verdict="dead_letter"}'
    assert page(NOTHING, counters)[fenced] == 0
    assert dead not in page(NOTHING, counters), "no topic is known"
    counters.on_event(on.Assigned(TENURE, frozenset({ORDERS_0})), 0)
    assert page(NOTHING, counters)[dead] == 0
    counters.on_actions([do.Settled(ORDERS_0, "dead_letter", 2)], 0, 0)
    counters.on_event(on.Assigned(TENURE, frozenset({ORDERS_0})), 0)
    assert page(NOTHING, counters)[dead] == 2
    assert counters.records_done == counters.dead_letters == 2


def test_a_query_has_series_from_its_first_batch_on_and_its_rate_is_that_of_the_last_one() -> None:
    counters = Counters()
    metrics = Metrics(GroupOfMetrics("g"), counters, tuple, lambda: 100.0)
    assert "rota_query" not in metrics.page().decode()
    counters.on_event(on.Reported([], on.QueryProgress(300, 150.0, 2.0)), 0)
    counters.on_event(on.Reported([], on.QueryProgress(100, 50.0, 0.4)), 0)
    counters.on_event(on.Reported([]), 0)
    page = metrics.page().decode()
    for line in (
        'rota_query_rows_total{group="g"} 400.0',
        'rota_query_rows_per_second{group="g"} 50.0',
        'rota_query_batch_seconds_bucket{group="g",le="0.5"} 1.0',
        'rota_query_batch_seconds_count{group="g"} 2.0',
        'rota_query_batch_seconds_sum{group="g"} 2.4',
    ):
        assert line in page.splitlines()


def test_series_of_a_partition_end_with_it_and_counts_stay() -> None:
    counters = Counters()
    counters.on_member_event(StateChanged("Stable"), 0)
    counters.on_member_event(member_do.Joined("m", 1, 1, "range", leads=True, leader="m"), 0)
    counters.on_member_event(member_do.Assign(TENURE, frozenset({ORDERS_0})), 0)
    counters.on_event(on.Assigned(TENURE, frozenset({ORDERS_0})), 0)
    counters.on_actions([do.Settled(ORDERS_0, "ack", 3)], 0, 0)
    counters.on_event(on.Committed(1, {ORDERS_0: codes.NONE}), 0)
    counters.on_event(on.Committed(2, {ORDERS_0: codes.ILLEGAL_GENERATION}), 0)
    shown = page(NOTHING._replace(last_progress_ms=50_000), counters)
    assert shown[f"rota_last_progress_timestamp_seconds{LABELS}"] == 50
    assert shown['rota_records_total{group="g",topic="orders",verdict="ack"}'] == 3
    assert shown['rota_commits_total{group="g",outcome="ok"}'] == 1
    assert shown['rota_commits_total{group="g",outcome="ILLEGAL_GENERATION"}'] == 1
    assert shown['rota_member_state{group="g",state="Stable"}'] == 1
    counters.on_member_event(member_do.Revoke(1, frozenset({ORDERS_0}), 9_000), 1_000)
    counters.on_member_event(member_do.Revoked(frozenset({ORDERS_0})), 1_250)
    counters.on_event(on.Revoked(frozenset({ORDERS_0})), 1_250)
    after_it = page(NOTHING, counters)
    assert f"rota_last_progress_timestamp_seconds{LABELS}" not in after_it
    assert after_it['rota_revoke_seconds_sum{group="g"}'] == 0.25
    assert after_it['rota_records_total{group="g",topic="orders",verdict="ack"}'] == 3


def test_other_partitions_and_other_states_are_news() -> None:
    counters = Counters()
    news: list[int] = []
    counters.on_change = lambda: news.append(1)
    counters.on_member_event(StateChanged("Stable"), 0)
    counters.on_event(on.Assigned(TENURE, frozenset({ORDERS_0})), 0)
    counters.on_event(on.Lost(frozenset({ORDERS_0}), "gone"), 0)
    assert len(news) == 3


def test_names_are_those_of_the_design() -> None:
    shown = {name.partition("{")[0].removesuffix("_total") for name in page(NOTHING)}
    named = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in shown}
    assert named <= {
        "rota_lag_records",
        "rota_lag_seconds",
        "rota_assigned_partitions",
        "rota_member_state",
        "rota_heartbeats",
        "rota_records",
        "rota_processing_seconds",
        "rota_commits",
        "rota_rebalances",
        "rota_revoke_seconds",
        "rota_inflight_records",
        "rota_last_progress_timestamp_seconds",
    }
