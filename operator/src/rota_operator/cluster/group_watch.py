"""State of one watched ConsumerGroup: what its coordinator, its brokers and its sidecars report. Held by `groups`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_operator.cluster.coordinators import FollowedCoordinator
from rota_operator.cluster.kafka_watch import KafkaWatch
from rota_operator.cluster.watched import Watched
from rota_operator.overview.description import EMPTY, UNKNOWN, Description
from rota_operator.overview.offset_lookups import FoundOffsets, OffsetLookups
from rota_operator.overview.offsets import QUERIED_VALID_MS
from rota_operator.overview.overview import Overview
from rota_operator.overview.problems import NO_ANSWER, CoordinatorProblem
from rota_operator.overview.reported_group import MEMBER_STATES
from rota_operator.overview.reports import REPORT_VALID_MS
from rota_operator.reconcile.observed import GroupStrategies, SidecarStrategies
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport


@dataclass(slots=True)
class Watch:
    """The running watches of one ConsumerGroup."""

    watched: Watched
    overview: Overview
    # None: the group is on Kafka.
    coordinator: FollowedCoordinator | None
    # None: the operator polls the offsets itself.
    lookups: OffsetLookups | None
    # None: the operator cannot read the group's Kafka cluster.
    kafka: KafkaWatch | None = None
    # Why the operator cannot read it, or why it does not answer.
    kafka_problem: str = ""
    description: Description | None = None
    # Why there is no description.
    problem: CoordinatorProblem = NO_ANSWER
    # Committed offsets exist; None: not polled yet, or not looked up.
    has_offsets: bool | None = None
    # The last complete listing of the group's offsets in Kafka, and when it was answered.
    listing: FoundOffsets | None = None
    listed_ms: int = 0
    # Partitions of the subscribed topics; None: unknown.
    partitions: int | None = None
    # Whether there are members, and offsets, the strategy, and the number of partitions; None and empty are unknown.
    state: tuple[bool | None, bool | None, str, int | None] = (None, None, "", None)
    # By the pod's name: when it was received, and the report.
    reports: dict[str, tuple[int, SidecarReport]] = field(default_factory=dict)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def expire_listing(self, now_ms: int) -> None:
        """Forget the listing once it is older than the offsets in it may be."""
        if self.listing is not None and now_ms - self.listed_ms > QUERIED_VALID_MS:
            self.listing = self.has_offsets = self.partitions = None

    def live(self, now_ms: int) -> Sequence[SidecarReport]:
        """Return the reports that have not expired, and forget the others."""
        self.reports = {
            pod: each for pod, each in self.reports.items() if now_ms - each[0] <= REPORT_VALID_MS
        }
        return [report for _, report in self.reports.values()]

    def reported_members(self, now_ms: int) -> int:
        """Return how many members report."""
        return sum(each.member.state in MEMBER_STATES for each in self.live(now_ms))

    def strategies(self, now_ms: int) -> GroupStrategies:
        """Return the assignment strategy that the group uses, and those of its sidecars."""
        described = self.description
        is_known = described is not None and described.state not in (EMPTY, UNKNOWN)
        return GroupStrategies(
            described.strategy if described is not None and is_known else "",
            {each.sidecar: strategies_in(each) for each in self.live(now_ms)},
        )


class ResetAccess(NamedTuple):
    """State of a watched group as far as a reset of its offsets needs it."""

    watched: Watched
    # None: the group is on Kafka.
    coordinator: FollowedCoordinator | None
    # None: the group is not described now.
    description: Description | None
    # Live reports by the names of the pods.
    reports: Mapping[str, SidecarReport]


def strategies_in(report: SidecarReport) -> SidecarStrategies:
    """Return the strategies of a sidecar: that of its generation, and those that it offers."""
    return SidecarStrategies(report.member.strategy, tuple(report.member.offered_strategies))
