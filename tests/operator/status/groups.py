"""A healthy group of two members and four partitions, and what is changed about it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import GroupView, MemberView, PartitionView
from rota_operator.reconcile.decision import Decision
from rota_operator.spec.status import Condition, ConsumerGroupStatus
from rota_operator.spec.validation import spec_of
from rota_operator.status.inputs import Pods, Progress, ReportedPartition, StatusInputs
from rota_operator.status.status import read_status, status_of
from tests.operator.reconcile.worlds import resource

NOW_MS = 1_000_000_000
NOW, LATER = "2026-09-21T09:00:00Z", "2026-09-21T09:01:00Z"
OWNERS = ("orders-a", "orders-b")


def member(name: str, **given: Any) -> MemberView:  # noqa: ANN401
    partitions = tuple(f"orders-{number}" for number in range(4) if OWNERS[number % 2] == name)
    base = MemberView(name, f"{name}-id", "Stable", 3, partitions, suspended=False, draining=False)
    return replace(base, **given)


def partition(number: int, **given: Any) -> PartitionView:  # noqa: ANN401
    base = PartitionView(
        "orders", number, OWNERS[number % 2], committed=90, end=100, lag_records=10, lag_seconds=1.5
    )
    return replace(base, **given)


def group(**given: Any) -> GroupView:  # noqa: ANN401
    """A view whose sums are those of its partitions, unless they are given."""
    partitions = given.get("partitions", tuple(map(partition, range(4))))
    lags = [each.lag_records for each in partitions]
    seconds = [each.lag_seconds for each in partitions]
    base = GroupView(
        group_id="shop.orders",
        name="shop/orders",
        state="Stable",
        generation=3,
        strategy="cooperative-sticky",
        members=tuple(map(member, OWNERS)),
        partitions=partitions,
        partitions_left_out=0,
        unowned=sum(each.owner is None for each in partitions),
        lag_records=None if None in lags else sum(lags),
        lag_seconds=None if None in seconds else max(seconds, default=None),
        arrival_rate=None,
        done_rate=None,
        rebalances=1,
        history=(),
    )
    return replace(base, **given)


def progress(age_s: float | None = 1.0, problem: str = "") -> Mapping[ReportedPartition, Progress]:
    """All partitions made progress so long ago."""
    at_ms = None if age_s is None else NOW_MS - int(age_s * 1000)
    return {reported(number): Progress(at_ms, problem) for number in range(4)}


def reported(number: int, sidecar: str = "") -> ReportedPartition:
    """A partition as its owner reports it, unless another sidecar is given."""
    return ReportedPartition(sidecar or OWNERS[number % 2], Partition("orders", number))


DECISION = Decision(
    actions=(),
    group_id="shop.orders",
    coordination="Rota",
    sidecar_image="rota-sidecar:1",
    selector="app=orders",
    desired_replicas=2,
)


def inputs(spec: Mapping[str, Any] | None = None, **given: Any) -> StatusInputs:  # noqa: ANN401
    applied: Mapping[str, Any] = given.get("resource") or resource(**(spec or {}))
    base = StatusInputs(
        resource=applied,
        spec=spec_of(applied),
        former=read_status(applied),
        decision=DECISION,
        now=NOW,
        now_ms=NOW_MS,
        group=group(),
        progress=progress(),
        pods=Pods(2, 2),
    )
    return replace(base, **given)


def status(spec: Mapping[str, Any] | None = None, **given: Any) -> ConsumerGroupStatus:  # noqa: ANN401
    return status_of(inputs(spec, **given))


def condition(found: ConsumerGroupStatus, kind: str) -> Condition:
    return next(each for each in found.conditions if each.type == kind)
