"""Queries of offsets reach sidecars over real Fleet streams, and their answers become the group's lag."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc.aio
import pytest

from rota_operator.cluster.channels import Channels
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.offset_orders import OffsetOrders
from rota_operator.cluster.offset_queries import PAGE_SIZE, PAGES_MAX
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import key_of
from rota_operator.cluster.watched import Watched
from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_operator.overview.offset_lookups import KINDS
from rota_operator.overview.offsets import QUERIED_VALID_MS
from rota_operator.overview.view import GroupView
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub

pytestmark = pytest.mark.process

KEY = Key("shop", "orders")
GROUP_ID = "shop.orders"
WITHIN_S = 60
COMMITTED, START, END = KINDS
# Of partition 1, which has no owner.
OFFSETS = {COMMITTED: 3, START: 0, END: 20}


class Operator:
    """Fleet and the watch of one group on Kafka, whose sidecars have their pod's name as a token."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.monotonic_s = 0.0
        self.warnings: list[str] = []
        self.states: list[Key] = []
        self.address = ""
        self._changed = asyncio.Event()
        self.groups = GroupWatches(
            Channels(lambda: None, insecure=True),
            GroupCallbacks(
                lambda _: self._changed.set(), lambda _: self._changed.set(), self.states.append, self._raise
            ),
            lambda: self.wall_ms,
        )
        self.fleet = FleetServer(FleetCallbacks(self._authenticate, self._on_report), order_ids(100))
        self.orders = OffsetOrders(self.fleet, self.groups, self._now_s, self._warn, round_s=0.01)

    def _now_s(self) -> float:
        # Each look at the clock is a long time after the last one, so that every query is due.
        self.monotonic_s += 10
        return self.monotonic_s

    def _warn(self, message: str) -> None:
        self.warnings.append(message)
        self._changed.set()

    def _raise(self, error: Exception) -> None:
        raise AssertionError from error

    async def _authenticate(self, token: str) -> Principal:
        return Principal(SidecarRef("shop", token), GROUP_ID, token, "shop/orders")

    def _on_report(self, principal: Principal, report: pb.SidecarReport) -> None:
        self.groups.add_report(key_of(principal), report)

    @property
    def view(self) -> GroupView:
        view = self.groups.view(KEY)
        assert view is not None
        return view

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


class Sidecar:
    """A sidecar that owns partition 0, and answers queries as `answer` says."""

    def __init__(self, pod: str, answer: Callable[[pb.SidecarOrder], pb.OrderAnswer]) -> None:
        self.pod = pod
        self.asked: list[pb.QueryOffsets] = []
        self._answer = answer
        self._reports: asyncio.Queue[pb.SidecarReport] = asyncio.Queue()

    def report(self, *answers: pb.OrderAnswer) -> None:
        member = pb.MemberReport(member_id=f"{self.pod}-id", state=pb.MEMBER_STATE_STABLE, generation_id=1)
        owned = pb.PartitionReport(topic="orders", partition=0, committed=4, start=0, end=10, position=4)
        self._reports.put_nowait(
            pb.SidecarReport(
                sidecar=self.pod, group_id=GROUP_ID, member=member, partitions=[owned], answers=answers
            )
        )

    async def run(self, address: str) -> None:
        self.report()
        async with grpc.aio.insecure_channel(address) as channel:
            metadata = (("authorization", f"Bearer {self.pod}"),)
            async for order in FleetStub(channel).Connect(self._requests(), metadata=metadata):
                self.asked.append(order.query_offsets)
                self.report(self._answer(order))

    async def _requests(self) -> AsyncIterator[pb.SidecarReport]:
        while True:
            yield await self._reports.get()


def found(order: pb.SidecarOrder) -> pb.OrderAnswer:
    offset = OFFSETS[order.query_offsets.what]
    partitions = [pb.PartitionOffset(topic="orders", partition=1, offset=offset)]
    return pb.OrderAnswer(order_id=order.order_id, offsets=partitions)


def run(story: Callable[[Operator], Awaitable[None]], *sidecars: Sidecar) -> None:
    async def serve() -> None:
        operator = Operator()
        operator.groups.add(
            KEY,
            Watched(
                GROUP_ID,
                "",
                has_log=False,
                topics=("orders",),
                topic_pattern="",
                initial_offset="earliest",
                read_committed=False,
            ),
        )
        async with asyncio.timeout(WITHIN_S), serve_fleet(operator.fleet, "127.0.0.1:0") as operator.address:
            tasks = [asyncio.create_task(each.run(operator.address)) for each in sidecars]
            tasks.append(asyncio.create_task(operator.orders.run()))
            try:
                await story(operator)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await operator.groups.close()

    asyncio.run(serve())


def test_the_lag_of_a_partition_without_an_owner_is_known_from_a_sidecar_and_expires() -> None:
    sidecar = Sidecar("orders-0", found)

    async def story(operator: Operator) -> None:
        await operator.until(lambda: operator.view.unowned == 1)
        lag = {each.partition: (each.owner, each.lag_records) for each in operator.view.partitions}
        assert lag == {0: ("orders-0", 6), 1: (None, 17)}
        assert operator.view.lag_records == 23
        assert (operator.groups.members(KEY), operator.groups.is_new(KEY)) == (1, False)
        assert KEY in operator.states
        assert [each.what for each in sidecar.asked[:3]] == list(KINDS)
        assert not sidecar.asked[0].topics

    run(story, sidecar)


def test_a_group_with_more_partitions_than_one_answer_has_is_listed_page_by_page() -> None:
    pages = {"": [1, 2], "orders/2": [3]}

    def paged(order: pb.SidecarOrder) -> pb.OrderAnswer:
        query = order.query_offsets
        assert query.page_size == PAGE_SIZE
        if query.topics:
            return found(order)
        offsets = [
            pb.PartitionOffset(topic="orders", partition=number, offset=OFFSETS[query.what])
            for number in pages[query.page_token]
        ]
        return pb.OrderAnswer(
            order_id=order.order_id,
            offsets=offsets,
            next_page_token="" if query.page_token else "orders/2",
        )

    sidecar = Sidecar("orders-0", paged)

    async def story(operator: Operator) -> None:
        await operator.until(lambda: operator.view.unowned == 3)
        assert [each.lag_records for each in operator.view.partitions] == [6, 17, 17, 17]
        assert operator.groups.is_new(KEY) is False
        asked = [(each.what, each.page_token) for each in sidecar.asked[:6]]
        assert asked == [(kind, token) for kind in KINDS for token in pages]
        assert operator.warnings == []

    run(story, sidecar)


def test_pages_without_an_end_are_an_error() -> None:
    def endless(order: pb.SidecarOrder) -> pb.OrderAnswer:
        return pb.OrderAnswer(order_id=order.order_id, next_page_token="orders/2")

    sidecar = Sidecar("orders-0", endless)

    async def story(operator: Operator) -> None:
        await operator.until(lambda: bool(operator.warnings))
        assert operator.warnings == [
            "orders-0 of shop/orders cannot look up offsets: the group has more than 200000 partitions; subscribe to fewer topics"
        ]
        assert {each.what for each in sidecar.asked[:PAGES_MAX]} == {COMMITTED}
        assert operator.view.unowned == 0

    run(story, sidecar)


def test_offsets_expire_and_members_become_unknown_when_no_sidecar_reports() -> None:
    async def story(operator: Operator) -> None:
        await operator.until(lambda: operator.view.unowned == 1)
        operator.wall_ms += QUERIED_VALID_MS + 1
        assert (operator.groups.members(KEY), operator.groups.is_new(KEY)) == (None, None)
        assert [each.lag_records for each in operator.view.partitions] == [None, None]

    run(story, Sidecar("orders-0", found))


def test_an_error_is_logged_once_and_another_sidecar_is_asked() -> None:
    def refused(order: pb.SidecarOrder) -> pb.OrderAnswer:
        return pb.OrderAnswer(order_id=order.order_id, error="unknown order: update the sidecar")

    old, new = Sidecar("orders-0", refused), Sidecar("orders-1", found)

    async def story(operator: Operator) -> None:
        await operator.until(lambda: len(operator.view.members) == 2 and operator.view.unowned == 1)
        assert operator.view.lag_records == 23
        assert set(operator.warnings) <= {
            "orders-0 of shop/orders cannot look up offsets: unknown order: update the sidecar"
        }

    run(story, old, new)


def test_one_error_is_one_warning() -> None:
    def refused(order: pb.SidecarOrder) -> pb.OrderAnswer:
        return pb.OrderAnswer(order_id=order.order_id, error="brokers cannot be reached")

    sidecar = Sidecar("orders-0", refused)

    async def story(operator: Operator) -> None:
        await operator.until(lambda: len(sidecar.asked) >= 3)
        assert operator.warnings == [
            "orders-0 of shop/orders cannot look up offsets: brokers cannot be reached"
        ]
        assert operator.view.unowned == 0
        assert operator.groups.is_new(KEY) is None

    run(story, sidecar)
