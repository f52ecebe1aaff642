"""A sidecar looks up the offsets of a group on Kafka: all at once, or page by page where these are too many for one answer."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from typing_extensions import override

from rota_operator.cluster.group_watch import ResetAccess
from rota_operator.cluster.reset_lookups import SidecarSource
from rota_operator.cluster.settings_orders import Fleet
from rota_operator.cluster.watched import Watched
from rota_operator.engines.port import Unavailable
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.offset_resets.sources import look_up
from rota_operator.overview.assignment import Partition
from rota_proto.fleet.v1 import fleet_pb2 as pb

# As of a sidecar.
PARTITIONS_MAX = 5_000
TOO_MANY = "the query covers {} partitions or topics; expected at most 5000, name fewer of them"


class KafkaSidecar(Fleet):
    """One sidecar, by the numbers of partitions of Kafka's topics; `consumed` are those of its subscription."""

    def __init__(self, counts: Mapping[str, int], consumed: Sequence[str]) -> None:
        self.counts = counts
        self.consumed = consumed
        self.queries = 0
        self.silent = False
        self.has_pages = True

    @property
    @override
    def connected(self) -> Sequence[Principal]:
        return ()

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        self.queries += 1
        if self.silent:
            return pb.OrderAnswer(error="the sidecar did not answer within 25 s")
        query = order.query_offsets
        wanted = {each.topic: list(each.partitions) for each in query.topics}
        wanted = wanted or {topic: [] for topic in self.consumed if topic in self.counts}
        missing = [topic for topic in wanted if topic not in self.counts]
        found = [
            pb.PartitionOffset(
                topic=topic, partition=number, offset=7 if query.what == pb.OFFSET_KIND_END else 3
            )
            for topic, numbers in wanted.items()
            if topic in self.counts
            for number in numbers or range(self.counts[topic])
        ]
        is_paged = self.has_pages and query.page_size > 0
        if len(found) > PARTITIONS_MAX and not is_paged:
            return pb.OrderAnswer(order_id=1, error=TOO_MANY.format(len(found)))
        first = int(query.page_token or 0)
        following = first + min(query.page_size or PARTITIONS_MAX, PARTITIONS_MAX)
        return pb.OrderAnswer(
            order_id=1,
            offsets=found[first:following],
            next_page_token=str(following) if following < len(found) else "",
            errors=[
                pb.PartitionError(topic=topic, partition=-1, message="the topic does not exist; create it")
                for topic in missing
            ],
        )


def source(sidecar: KafkaSidecar, *, topics: Sequence[str] = (), pattern: str = "") -> SidecarSource:
    watched = Watched(
        "shop.orders",
        "",
        has_log=False,
        topics=tuple(topics),
        topic_pattern=pattern,
        initial_offset="earliest",
        read_committed=False,
    )
    return SidecarSource(sidecar, SidecarRef("shop", "a"), ResetAccess(watched, None, None, {}))


MANY = {f"orders-{number}": 4_000 for number in range(5)}


def test_topics_that_fit_are_looked_up_at_once() -> None:
    sidecar = KafkaSidecar({"orders": 3, "payments": 2}, ["orders", "payments"])
    ranges = asyncio.run(source(sidecar, topics=["orders", "payments"]).ranges())
    assert ranges == dict.fromkeys(
        [*(Partition("orders", n) for n in range(3)), *(Partition("payments", n) for n in range(2))], (3, 7)
    )
    assert sidecar.queries == 2


@pytest.mark.parametrize(
    ("topics", "pattern"), [([*MANY, "not-there-yet"], ""), ([], "orders-.*")], ids=["topics", "pattern"]
)
def test_what_does_not_fit_into_one_answer_is_looked_up_page_by_page(
    topics: Sequence[str], pattern: str
) -> None:
    sidecar = KafkaSidecar({**MANY, "payments": 1}, topics or list(MANY))
    lookup = asyncio.run(look_up(source(sidecar, topics=topics, pattern=pattern), "shop.orders", ()))
    assert len(lookup.ranges) == 20_000
    assert lookup.committed.keys() == lookup.ranges.keys()
    assert set(lookup.ranges.values()) == {(3, 7)}


def test_a_topic_may_have_more_partitions_than_one_answer() -> None:
    sidecar = KafkaSidecar({"orders": 6_000, "payments": 1}, ["orders", "payments"])
    lookup = asyncio.run(look_up(source(sidecar, topics=["orders", "payments"]), "shop.orders", ("orders",)))
    assert lookup.ranges.keys() == {Partition("orders", number) for number in range(6_000)}


def test_a_sidecar_without_pages_refuses_what_does_not_fit() -> None:
    sidecar = KafkaSidecar(MANY, list(MANY))
    sidecar.has_pages = False
    with pytest.raises(Unavailable) as refused:
        asyncio.run(source(sidecar, topics=list(MANY)).ranges())
    assert str(refused.value) == (
        "a cannot look up offsets: the query covers 20000 partitions or topics; expected at most 5000, name fewer of them"
    )


def test_a_sidecar_that_does_not_answer_is_asked_once() -> None:
    sidecar = KafkaSidecar(MANY, list(MANY))
    sidecar.silent = True
    with pytest.raises(Unavailable, match="a cannot look up offsets: the sidecar did not answer within 25 s"):
        asyncio.run(source(sidecar, topics=list(MANY)).ranges())
    assert sidecar.queries == 1
