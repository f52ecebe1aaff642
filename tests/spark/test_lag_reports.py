"""The age of the first uncommitted record, from a driver's look-ups to the sidecar's metrics; without Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rota_sidecar.wiring import wall_ms
from rota_spark.core.plan import Plan, Range
from rota_spark.first_records import first_records_at
from rota_spark.lag_reports import LagReports
from rota_spark.membership import Batch, Membership, MembershipFailed
from rota_spark.sidecar_calls import SidecarCalls
from tests.support.coordinator import Coordinator, serving
from tests.support.processes import wait_for
from tests.support.records import batch, produce
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.process

TOPIC = "aged"
PART = (TOPIC, 0)
RECORDS = 10
APART_S = 60
SLACK_S = 30
WITHIN_S = 60


def lag_s(sidecar: Deliverer) -> float | None:
    """As the sidecar's metrics have it."""
    return sidecar.metrics().get(f'rota_lag_seconds{{group="{TOPIC}",partition="0",topic="{TOPIC}"}}')


def refuse(failure: MembershipFailed) -> None:
    """Fail the thread of the events."""
    raise failure


@contextmanager
def member(sidecar: Deliverer, coordinator: Coordinator) -> Iterator[tuple[Membership, LagReports]]:
    """A driver without a query."""
    with SidecarCalls(sidecar.address) as calls:
        membership = Membership(calls, "driver", refuse, lambda *_: None)
        connect = partial(first_records_at, f"rota://{coordinator.address}", read_committed=True)
        lag = LagReports(membership, calls, connect)
        try:
            membership.start(WITHIN_S)
            lag.start()
            yield membership, lag
        finally:
            membership.close()
            lag.close()


def test_the_lag_in_seconds_is_the_age_of_the_first_record_that_is_not_committed(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        coordinator.make_topic(TOPIC, 1)
        oldest_ms = wall_ms() - RECORDS * APART_S * 1000
        times_ms = [oldest_ms + index * APART_S * 1000 for index in range(RECORDS)]
        produce(coordinator.address, TOPIC, 0, *(batch(["x"], at_ms=at_ms) for at_ms in times_ms))
        sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", TOPIC, [f"--topics={TOPIC}"])

        def is_age_of(offset: int) -> bool:
            found = lag_s(sidecar)
            age_s = (wall_ms() - times_ms[offset]) / 1000
            return found is not None and found <= age_s <= found + SLACK_S

        with delivering(sidecar), member(sidecar, coordinator) as (membership, lag):

            def begin(start: int, end: int) -> Batch:
                begun = membership.begin(Plan(1, (Range(*PART, start, end),)))
                assert [each.end for each in begun.ranges] == [end]
                lag.look({PART: end})
                return begun

            def end(begun: Batch) -> None:
                membership.commit(begun)
                membership.end()
                lag.look({})

            end(begin(0, 3))
            wait_for("the age is that of record 3", lambda: is_age_of(3), within_s=WITHIN_S)
            in_flight = begin(3, 7)
            wait_for("it does not change with the batch", lambda: is_age_of(3), within_s=WITHIN_S)
            end(in_flight)
            wait_for("the age is that of record 7", lambda: is_age_of(7), within_s=WITHIN_S)
            with SidecarCalls(sidecar.address) as calls:
                assert calls.positions([PART]) == {PART: 7}
                calls.seek({PART: 1})
                lag.look({})
                wait_for("the age is that of record 1", lambda: is_age_of(1), within_s=WITHIN_S)
                assert calls.positions([PART]) == {PART: 1}
            end(begin(1, RECORDS))
            wait_for("there is no lag", lambda: lag_s(sidecar) == 0, within_s=WITHIN_S)
