"""
Executes the orders of Fleet: each order once, answered by its id in the reports.

`client` passes orders in and takes answers out. An order that is repeated because its answer was lost is answered again.
A query changes nothing and may have a long answer: it is not remembered, and executed again when it is repeated.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.settings_pb2 import GroupSettings
from rota_sidecar.config.parsing import is_name
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.identity import JoinMetadata, SavedMembership
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.fleet.queries import OffsetQueries, QueryError
from rota_sidecar.fleet.reconfigure import Reconfigurer
from rota_sidecar.lifecycle.drain import DrainController
from rota_sidecar.lifecycle.drain_orders import Source
from rota_sidecar.lifecycle.member import MemberLifecycle

# Remembered answers of finished orders.
ANSWERS_MAX = 100
UNDER_WAY_MAX = 100
RESET_TIMEOUT_S = 60
# Answers in one report, which has at most 4 MiB; the next report follows at once.
ANSWERS_BYTES_MAX = 1 << 20


class OrderError(Exception):
    """An order cannot be executed; the message says why and what to do."""


class OrderExecutor:
    """Executes orders; create and use it on a running loop. Calls `trigger_now` for each answer."""

    def __init__(
        self,
        driver: DeliveryDriver,
        members: MemberLifecycle,
        draining: DrainController,
        reconfiguring: Reconfigurer,
        queries: OffsetQueries,
        wall_ms: Callable[[], int],
    ) -> None:
        self._driver = driver
        self._members = members
        self._draining = draining
        self._reconfiguring = reconfiguring
        self._queries = queries
        self._wall_ms = wall_ms
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._answers: OrderedDict[int, pb.OrderAnswer] = OrderedDict()
        self._unsaid: deque[pb.OrderAnswer] = deque()
        self.trigger_now: Callable[[], None] = lambda: None
        # True if the operator at the other end of the present stream orders hand-overs.
        self.expects_hand_over = False

    def execute(self, order: pb.SidecarOrder) -> None:
        """Start an order, unless it is under way or finished."""
        number = order.order_id
        if number in self._under_way:
            return
        known = self._answers.get(number)
        if known is not None:
            self._say(known)
        elif len(self._under_way) >= UNDER_WAY_MAX:
            message = f"{UNDER_WAY_MAX} orders are under way: wait for some of their answers"
            self._say(pb.OrderAnswer(order_id=number, error=message))
        else:
            task = asyncio.ensure_future(self._carry_out(order))
            self._under_way[number] = task

    def begin_stream(self) -> None:
        """Queue all remembered answers again: the former stream may have ended before the server read them."""
        self.expects_hand_over = False
        of_queries = [answer for answer in self._unsaid if answer.order_id not in self._answers]
        self._unsaid = deque([*self._answers.values(), *of_queries])

    def end_stream(self) -> None:
        """Wait for no order to hand over: the next stream may be of an operator that orders none."""
        self.expects_hand_over = False
        self._driver.hand_over(has_successor=False)
        self._members.succession.stream_ended()

    def answers(self) -> Sequence[pb.OrderAnswer]:
        """Return queued answers for one report; `trigger_now` is called for the rest."""
        said: list[pb.OrderAnswer] = []
        size = 0
        while self._unsaid and (not said or size + self._unsaid[0].ByteSize() <= ANSWERS_BYTES_MAX):
            said.append(self._unsaid.popleft())
            size += said[-1].ByteSize()
        if self._unsaid:
            self.trigger_now()
        return said

    async def close(self) -> None:
        """Cancel all orders under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _carry_out(self, order: pb.SidecarOrder) -> None:
        answer = pb.OrderAnswer(order_id=order.order_id)
        try:
            await self._done(order, answer)
        except (OrderError, QueryError) as wrong:
            answer.error = str(wrong)
        except Exception as error:  # noqa: BLE001  an unexpected failure of an order must not end the sidecar
            answer.error = f"the order failed unexpectedly ({type(error).__name__}: {error}): report it"
        del self._under_way[order.order_id]
        if order.WhichOneof("order") != "query_offsets":
            self._answers[order.order_id] = answer
        while len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        self._say(answer)

    def _say(self, answer: pb.OrderAnswer) -> None:
        self._unsaid.append(answer)
        self.trigger_now()

    async def _done(self, order: pb.SidecarOrder, answer: pb.OrderAnswer) -> None:
        """Execute an order; fill in the offsets of a reset or of a query. Raises OrderError, QueryError."""
        match order.WhichOneof("order"):
            case "configure":
                self.expects_hand_over = order.configure.orders_hand_over
                self._members.succession.announced(orders_join=order.configure.orders_join)
                self._configure(order.configure.settings)
            case "suspend" | "resume" as kind:
                self._reconfiguring.suspend(suspended=kind == "suspend")
            case "drain":
                await self._drain(order.drain)
            case "reset_offsets":
                answer.offsets.extend(await self._reset(order.reset_offsets))
            case "query_offsets":
                await self._query(order.query_offsets, answer)
            case _:
                await self._done_by_member(order)

    async def _done_by_member(self, order: pb.SidecarOrder) -> None:
        """Execute an order that concerns the membership alone. Raises OrderError."""
        match order.WhichOneof("order"):
            case "instance":
                self._be_called(order.instance)
            case "hand_over":
                self._hand_over(order.hand_over)
            case "join":
                self._members.succession.join()
            case "take_over":
                await self._take_over(order.take_over)
            case "heartbeat":
                self._members.heartbeat_now()
            case "rebalance":
                self._members.rebalance(order.rebalance.reason)
            case "remove_instances":
                await self._remove_instances(order.remove_instances)
            case _:
                raise OrderError("unknown order: update the sidecar")

    def _configure(self, settings: GroupSettings) -> None:
        wrong = self._reconfiguring.configure(settings)
        if wrong:
            raise OrderError(wrong)

    async def _drain(self, drain: pb.Drain) -> None:
        within_ms = drain.within_ms or drain.expires_ms - self._wall_ms()
        left = await self._draining.expire_in(Source.FLEET, within_ms)
        if left:
            raise OrderError(f"{left} records are still in flight")

    def _be_called(self, instance: pb.Instance) -> None:
        name = instance.name
        if not is_name(name):
            raise OrderError(
                f"invalid instance name {name!r}: up to 249 letters, digits, '.', '_' and '-' are allowed"
            )
        if name == self._members.fenced_instance and not instance.after_fencing:
            raise OrderError(
                f"another process has taken the instance {name} (FENCED_INSTANCE_ID): end it, or replace this pod"
            )
        self._members.rename_instance(name)

    def _hand_over(self, hand_over: pb.HandOver) -> None:
        successor = "" if hand_over.no_successor else hand_over.successor
        succession = self._members.succession
        # While it drains for a successor that has ended meanwhile, another one may be named.
        if successor and not (self._driver.delivery.awaits_successor or succession.successor):
            raise OrderError("this sidecar does not wait for a successor")
        succession.hand_over(successor)
        self._driver.hand_over(has_successor=not hand_over.no_successor)

    async def _take_over(self, order: pb.TakeOver) -> None:
        """Go on as a member whose pod has given it up for this one; remove that member if this sidecar is one already."""
        if order.successor != self._members.client_id:
            raise OrderError(f"the membership was given up for {order.successor!r}, not for this pod")
        saved = membership_from(order.membership)
        if not saved.member_id or saved.generation < 0:
            raise OrderError("a membership needs a member id and a generation")
        own = self._members.current.member.identity.member_id
        if saved.member_id == own or self._members.succession.take_over(saved):
            return
        await self._of_coordinator(
            self._members.current.remove_member(saved.member_id, "its successor is a member already")
        )

    async def _remove_instances(self, removal: pb.RemoveInstances) -> None:
        if self._members.instance_name in removal.names:
            raise OrderError(
                f"{self._members.instance_name} is the instance of this sidecar: drain it instead"
            )
        current = self._members.current
        if current.member.identity.member_id in removal.member_ids:
            raise OrderError("the member is the one of this sidecar: drain it instead")
        if removal.names:
            await self._of_coordinator(current.remove_instances(removal.names))
        for member_id in removal.member_ids:
            await self._of_coordinator(
                current.remove_member(member_id, "its pod, and the one that was to succeed it, have ended")
            )

    async def _of_coordinator(self, removal: Awaitable[str]) -> None:
        """Wait until members are removed. Raises OrderError."""
        try:
            wrong = await removal
        except (Unreachable, Refused) as failure:
            raise OrderError(str(failure)) from None
        if wrong:
            raise OrderError(wrong)

    async def _query(self, query: pb.QueryOffsets, answer: pb.OrderAnswer) -> None:
        found = await self._queries.run(query)
        answer.offsets.extend(offsets_to(found.offsets))
        answer.errors.extend(
            pb.PartitionError(topic=partition.topic, partition=partition.number, message=message)
            for partition, message in sorted(found.errors.items())
        )
        answer.topic_ids.extend(
            pb.TopicId(topic=topic, topic_id=topic_id) for topic, topic_id in sorted(found.topic_ids.items())
        )
        answer.next_page_token = found.next_page_token

    async def _reset(self, reset: pb.ResetOffsets) -> Sequence[pb.PartitionOffset]:
        offsets = {
            Partition(topic.topic, each.partition): each.offset
            for topic in reset.topics
            for each in topic.offsets
        }
        try:
            async with asyncio.timeout(RESET_TIMEOUT_S):
                answer = await self._driver.ask(on.ResetOffsets(0, reset.generation_id, offsets))
        except TimeoutError:
            raise OrderError(
                f"the coordinator did not answer within {RESET_TIMEOUT_S} s: order it again"
            ) from None
        failed = {
            partition: error for partition, error in (answer.errors or {}).items() if error != codes.NONE
        }
        if answer.error != codes.NONE or failed:
            first = next(iter(failed.items()), None)
            error = answer.error if first is None else first[1]
            about = "" if first is None else f"{first[0].topic}-{first[0].number}: "
            raise OrderError(f"{about}{answer.message or codes.ErrorCode.Name(error)}")
        return offsets_to(answer.offsets or offsets)


def offsets_to(offsets: Mapping[Partition, int]) -> Sequence[pb.PartitionOffset]:
    """Return offsets as Fleet has them, sorted."""
    return [
        pb.PartitionOffset(topic=partition.topic, partition=partition.number, offset=offset)
        for partition, offset in sorted(offsets.items())
    ]


def membership_from(message: pb.Membership) -> SavedMembership:
    """Return a membership of Fleet as the member resumes it."""
    return SavedMembership(
        message.member_id,
        message.generation_id,
        message.strategy,
        message.leads,
        JoinMetadata(tuple(message.topics), tuple(message.offered_strategies)),
        frozenset(message.group_topics),
    )
