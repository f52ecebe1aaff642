"""
Looks up offsets for Fleet: committed, log start, log end, by timestamp; of any partition, also of those that no member owns.

Used by `fleet.orders`: the operator has no credentials for Kafka, the sidecar has. One query runs at a time, and every query
ends within TIMEOUT_S. A query with a page size is answered in pages, each by a query of its own; the page token names the last partition of
the page before.
"""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.application.port import Deliveries
from rota_sidecar.config.parsing import topics_problem
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.member.config import Subscription
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.port import Refused, Topics, Unreachable

TIMEOUT_S = 20.0
# Of one look-up, whose failure says more than a timeout.
LOOK_UP_S = 15.0
# An answer is part of a report, which has at most 4 MiB.
PARTITIONS_MAX = 5_000
ALL_PARTITIONS = -1
# Topic and number of the last partition of a page.
_PAGE_TOKEN = re.compile(r"([^/]{1,249})/([0-9]{1,10})", re.ASCII)


class QueryError(Exception):
    """A query cannot be executed; the message says why and what to do."""


class Found(NamedTuple):
    """The result of a query; a partition that has no such offset is in neither."""

    offsets: Mapping[Partition, int]
    # By partition, with the number ALL_PARTITIONS for a whole topic.
    errors: Mapping[Partition, str]
    # By topic, as far as the engine has ids.
    topic_ids: Mapping[str, bytes]
    # Empty: the last page.
    next_page_token: str


class OffsetQueries:
    """Queries of one sidecar; create and use it on a running loop. `subscription` returns the group's topics."""

    def __init__(
        self, deliveries: Deliveries, topics: Topics, subscription: Callable[[], Subscription]
    ) -> None:
        self._deliveries = deliveries
        self._topics = topics
        self._subscription = subscription
        self._turn = asyncio.Lock()

    async def run(self, query: pb.QueryOffsets) -> Found:
        """Look up the offsets. Raises QueryError."""
        _check(query)
        try:
            async with asyncio.timeout(TIMEOUT_S), self._turn:
                return await self._run(query)
        except TimeoutError:
            message = f"no answer within {TIMEOUT_S:g} s; check brokers and coordinator, and query again"
            raise QueryError(message) from None
        except (Unreachable, Refused) as failure:
            raise QueryError(str(failure)) from None

    async def _run(self, query: pb.QueryOffsets) -> Found:
        wanted = {each.topic: set(each.partitions) for each in query.topics}
        described = await self._described(wanted)
        partitions: list[Partition] = []
        errors: dict[Partition, str] = {}
        for topic in sorted(wanted or described):
            count = described[topic].partitions if topic in described else None
            found, wrong = _existing(topic, wanted.get(topic, ()), count)
            partitions += found
            errors |= wrong
        page, next_page_token = _page(partitions, query)
        offsets, failed = await self._offsets(page, query)
        ids = {
            topic: described[topic].topic_id
            for topic in {each.topic for each in page}
            if described[topic].topic_id
        }
        # What does not exist is on the first page.
        return Found(offsets, failed if query.page_token else {**errors, **failed}, ids, next_page_token)

    async def _described(self, wanted: Collection[str]) -> Mapping[str, Topic]:
        if wanted:
            return await self._topics.describe(wanted, LOOK_UP_S)
        subscription = self._subscription()
        if subscription.topics:
            return await self._topics.describe(subscription.topics, LOOK_UP_S)
        if not subscription.pattern:
            raise QueryError("the group has no subscription; name the topics of the query")
        pattern = re.compile(subscription.pattern)
        everything = await self._topics.describe(None, LOOK_UP_S)
        return {name: topic for name, topic in everything.items() if pattern.fullmatch(name)}

    async def _offsets(
        self, partitions: Sequence[Partition], query: pb.QueryOffsets
    ) -> tuple[Mapping[Partition, int], Mapping[Partition, str]]:
        if not partitions:
            return {}, {}
        match query.what:
            case pb.OFFSET_KIND_COMMITTED:
                return await self._committed(partitions)
            case pb.OFFSET_KIND_TIMESTAMP:
                times = dict.fromkeys(partitions, query.timestamp_ms)
                found = await self._deliveries.records.at_times(times, LOOK_UP_S)
                return {partition: each.offset for partition, each in found.items()}, {}
            case _:
                bounds = await self._deliveries.records.bounds(partitions, LOOK_UP_S)
                is_start = query.what == pb.OFFSET_KIND_START
                found_edges = {
                    partition: each.start if is_start else each.end for partition, each in bounds.items()
                }
                gone = dict.fromkeys(
                    set(partitions) - bounds.keys(), "its offsets are not known; query again"
                )
                return found_edges, gone

    async def _committed(
        self, partitions: Sequence[Partition]
    ) -> tuple[Mapping[Partition, int], Mapping[Partition, str]]:
        stored = await self._deliveries.committed(partitions, LOOK_UP_S)
        offsets = {
            partition: each.offset
            for partition, each in stored.items()
            if each.error == codes.NONE and each.offset >= 0
        }
        errors = {
            partition: f"its committed offset cannot be read ({codes.ErrorCode.Name(each.error)}); query again"
            for partition, each in stored.items()
            if each.error != codes.NONE
        }
        return offsets, errors


def _check(query: pb.QueryOffsets) -> None:
    """Raise QueryError for a query that no sidecar can execute."""
    if query.what not in pb.OffsetKind.values() or query.what == pb.OFFSET_KIND_UNSPECIFIED:
        raise QueryError(
            "`what` must be COMMITTED, START, END or TIMESTAMP; update the sidecar if it is a newer kind"
        )
    if query.what == pb.OFFSET_KIND_TIMESTAMP and query.timestamp_ms < 0:
        raise QueryError(f"timestamp_ms is {query.timestamp_ms}; expected Unix time in milliseconds")
    if query.page_size < 0:
        raise QueryError(f"page_size is {query.page_size}; expected a number of partitions")
    if query.page_token and _PAGE_TOKEN.fullmatch(query.page_token) is None:
        raise QueryError("the page token is invalid; pass the next_page_token of the page before")
    names = [each.topic for each in query.topics]
    wrong = topics_problem(names)
    if wrong:
        raise QueryError(wrong)
    if len(set(names)) < len(names):
        raise QueryError("a topic is listed twice; list each topic once, with all its partitions")
    _check_number(max(len(names), sum(len(each.partitions) for each in query.topics)))


def _check_number(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise QueryError(
            f"the query covers {partitions} partitions or topics; expected at most {PARTITIONS_MAX}, name fewer of them"
        )


def _page(partitions: Sequence[Partition], query: pb.QueryOffsets) -> tuple[Sequence[Partition], str]:
    """Return the partitions that the query is answered for, of all in their order, and the next page token."""
    if not query.page_size and not query.page_token:
        _check_number(len(partitions))
        return partitions, ""
    if query.page_token:
        topic, _, number = query.page_token.partition("/")
        partitions = partitions[bisect_right(partitions, Partition(topic, int(number))) :]
    page = partitions[: min(query.page_size or PARTITIONS_MAX, PARTITIONS_MAX)]
    is_last = len(page) == len(partitions)
    return page, "" if is_last else f"{page[-1].topic}/{page[-1].number}"


def _existing(
    topic: str, numbers: Collection[int], count: int | None
) -> tuple[list[Partition], dict[Partition, str]]:
    """Return the partitions that exist, and an error for each that does not; no numbers: all. `count` None: no such topic."""
    if count is None:
        return [], {Partition(topic, ALL_PARTITIONS): "the topic does not exist; create it"}
    wrong = f"the partition does not exist; the topic has {count}"
    missing = {Partition(topic, number): wrong for number in numbers if not 0 <= number < count}
    found = [Partition(topic, number) for number in sorted(numbers or range(count)) if 0 <= number < count]
    return found, missing
