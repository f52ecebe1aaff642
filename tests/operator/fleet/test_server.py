"""Fleet takes reports of authenticated sidecars only, and its orders reach the sidecar that they are for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
import pytest

from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_operator.fleet.stream import ORDERS_MAX
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub
from rota_service.token_review import AuthenticationUnavailable, Unauthenticated

pytestmark = pytest.mark.process

WITHIN_S = 60
POD = SidecarRef("shop", "orders-0")
SUSPEND = pb.SidecarOrder(suspend=pb.Suspend())
RESUME = pb.SidecarOrder(resume=pb.Resume())


def report(*answers: pb.OrderAnswer, sidecar: str = POD.pod, group_id: str = "orders") -> pb.SidecarReport:
    return pb.SidecarReport(sidecar=sidecar, group_id=group_id, answers=answers)


class Operator:
    """A Fleet server, the tokens that it accepts, and the reports that it received."""

    def __init__(self) -> None:
        self.tokens: dict[str, Principal | Exception] = {"secret": Principal(POD, "orders", uid="1")}
        self.reports: list[tuple[Principal, pb.SidecarReport]] = []
        self.rejected: list[str] = []
        self.opened: list[Principal] = []
        self.is_leader = True
        self.reported = asyncio.Condition()
        self.authentications = 0
        self.authenticated_again = asyncio.Condition()
        self.address = ""
        self._notifying: set[asyncio.Task[None]] = set()
        callbacks = FleetCallbacks(
            self._authenticate,
            self._on_report,
            lambda _, reason: self.rejected.append(reason),
            lambda: self.is_leader,
            self.opened.append,
        )
        self.fleet = FleetServer(callbacks, order_ids(100))

    async def _authenticate(self, token: str) -> Principal:
        async with self.authenticated_again:
            self.authentications += 1
            self.authenticated_again.notify_all()
        found = self.tokens.get(token, Unauthenticated("unknown token"))
        if isinstance(found, Exception):
            raise found
        return found

    def _on_report(self, principal: Principal, received: pb.SidecarReport) -> None:
        self.reports.append((principal, received))
        task = asyncio.ensure_future(self._notify())
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify(self) -> None:
        async with self.reported:
            self.reported.notify_all()

    async def wait_for_reports(self, count: int) -> None:
        async with self.reported:
            await self.reported.wait_for(lambda: len(self.reports) >= count)

    def order(self, order: pb.SidecarOrder, within_s: float = WITHIN_S) -> "asyncio.Task[pb.OrderAnswer]":
        """Send an order to the pod; it waits in its queue when this returns and the loop has turned."""
        return asyncio.ensure_future(self.fleet.order(POD, order, within_s))


class Sidecar:
    """A stream of a sidecar on a connection of its own, driven by the test."""

    def __init__(self, operator: Operator, *, token: str = "secret") -> None:
        self._reports: asyncio.Queue[pb.SidecarReport | None] = asyncio.Queue()
        self._channel = grpc.aio.insecure_channel(operator.address)
        metadata = (("authorization", f"Bearer {token}"),)
        self.stream = FleetStub(self._channel).Connect(self._requests(), metadata=metadata)

    async def _requests(self) -> AsyncIterator[pb.SidecarReport]:
        while (each := await self._reports.get()) is not None:
            yield each

    def send(self, *reports: pb.SidecarReport | None) -> None:
        """Send reports; None ends them."""
        for each in reports:
            self._reports.put_nowait(each)

    async def next_order(self) -> pb.SidecarOrder:
        """Return the next order; fails if the stream has ended."""
        order = await self.stream.read()
        assert isinstance(order, pb.SidecarOrder), "the stream has ended"
        return order

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """Wait until the server has ended the stream; return its status."""
        return await self.stream.code(), await self.stream.details() or ""

    async def close(self) -> None:
        await self._channel.close()


Story = Callable[[Operator], Awaitable[None]]


def run(story: Story) -> None:
    async def serve() -> None:
        operator = Operator()
        async with asyncio.timeout(WITHIN_S), serve_fleet(operator.fleet, "127.0.0.1:0") as operator.address:
            await story(operator)

    asyncio.run(serve())


async def connected(operator: Operator, *, token: str = "secret") -> Sidecar:
    """Return a sidecar whose first report was received."""
    sidecar, before = Sidecar(operator, token=token), len(operator.reports)
    sidecar.send(report())
    await operator.wait_for_reports(before + 1)
    return sidecar


def test_reports_arrive_in_order_with_the_identity_of_the_token() -> None:
    async def story(operator: Operator) -> None:
        second = pb.SidecarReport(sidecar=POD.pod, group_id="orders", member=pb.MemberReport(records_done=3))
        sidecar = Sidecar(operator)
        sidecar.send(report(), second, None)
        assert await sidecar.end() == (grpc.StatusCode.OK, "")
        principal = operator.tokens["secret"]
        assert operator.reports == [(principal, report()), (principal, second)]

    run(story)


@pytest.mark.parametrize(
    "other",
    [report(sidecar="orders-7"), report(group_id="others"), pb.SidecarReport()],
    ids=["other pod", "other group", "empty"],
)
def test_a_report_under_another_name_ends_the_stream(other: pb.SidecarReport) -> None:
    async def story(operator: Operator) -> None:
        sidecar = Sidecar(operator)
        sidecar.send(other)
        code, message = await sidecar.end()
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert message.endswith("; check --client-id and --group-id")
        assert operator.reports == []
        assert operator.rejected == [message]

    run(story)


def test_a_rejected_token_is_reported_without_the_token() -> None:
    async def story(operator: Operator) -> None:
        assert await Sidecar(operator, token="wrong").end() == (
            grpc.StatusCode.UNAUTHENTICATED,
            "unknown token",
        )
        code, message = await Sidecar(operator, token="").end()
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "the call has no token" in message
        assert operator.rejected == ["unknown token", message]

    run(story)


def test_a_sidecar_tries_again_while_tokens_cannot_be_authenticated() -> None:
    async def story(operator: Operator) -> None:
        operator.tokens["secret"] = AuthenticationUnavailable("the API server does not answer; retrying")
        assert await Sidecar(operator).end() == (
            grpc.StatusCode.UNAVAILABLE,
            "the API server does not answer; retrying",
        )
        assert operator.rejected == []

    run(story)


def test_only_the_leader_serves() -> None:
    async def story(operator: Operator) -> None:
        operator.is_leader = False
        code, message = await Sidecar(operator).end()
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "not the leader" in message
        operator.is_leader = True
        await connected(operator)

    run(story)


def test_an_order_is_done_when_its_answer_is_reported() -> None:
    async def story(operator: Operator) -> None:
        sidecar = await connected(operator)
        for order, error in ((SUSPEND, ""), (RESUME, "it hurts")):
            answer = operator.order(order)
            sent = await sidecar.next_order()
            assert sent.WhichOneof("order") == order.WhichOneof("order")
            sidecar.send(report(pb.OrderAnswer(order_id=sent.order_id, error=error)))
            assert (await answer).error == error

    run(story)


def test_each_order_has_an_id_of_its_own() -> None:
    async def story(operator: Operator) -> None:
        sidecar = await connected(operator)
        answers = [operator.order(SUSPEND) for _ in range(3)]
        assert [(await sidecar.next_order()).order_id for _ in answers] == [100, 101, 102]
        for each in answers:
            each.cancel()

    run(story)


def test_answers_to_the_orders_of_an_earlier_life_are_ignored() -> None:
    async def story(operator: Operator) -> None:
        sidecar = await connected(operator)
        answer = operator.order(SUSPEND)
        sent = await sidecar.next_order()
        sidecar.send(
            report(pb.OrderAnswer(order_id=1)), report(pb.OrderAnswer(order_id=sent.order_id, error="x"))
        )
        assert (await answer).error == "x"

    run(story)


def test_an_order_without_an_answer_ends_at_its_deadline() -> None:
    async def story(operator: Operator) -> None:
        await connected(operator)
        answer = await operator.fleet.order(POD, SUSPEND, 0.1)
        assert answer.error == "orders-0 did not answer within 0.1 s; see its log"
        assert not answer.order_id

    run(story)


def test_an_order_to_a_sidecar_without_a_stream_is_refused_at_once() -> None:
    async def story(operator: Operator) -> None:
        refused = "orders-0 is not connected, or has too many pending orders; see its log"
        assert (await operator.fleet.order(POD, SUSPEND, WITHIN_S)).error == refused
        sidecar = await connected(operator)
        other = await operator.fleet.order(SidecarRef("elsewhere", POD.pod), SUSPEND, WITHIN_S)
        assert other.error == refused, "a pod of this name in another namespace is another sidecar"
        sidecar.send(None)
        await sidecar.end()
        assert (await operator.fleet.order(POD, SUSPEND, WITHIN_S)).error == refused

    run(story)


def test_more_orders_than_the_limit_are_refused_at_once() -> None:
    async def story(operator: Operator) -> None:
        await connected(operator)
        # The loop does not turn between them, so none is sent yet.
        answers = await asyncio.gather(
            *(operator.fleet.order(POD, SUSPEND, 0.2) for _ in range(ORDERS_MAX + 5))
        )
        assert sum("too many pending orders" in each.error for each in answers) == 5

    run(story)


def test_the_newest_stream_of_a_sidecar_replaces_the_previous_one() -> None:
    async def story(operator: Operator) -> None:
        previous = await connected(operator)
        newest = await connected(operator)
        assert (await previous.end())[0] is grpc.StatusCode.ABORTED
        assert [each.sidecar for each in operator.opened] == [POD, POD]
        answer = operator.order(SUSPEND)
        sent = await newest.next_order()
        newest.send(report(pb.OrderAnswer(order_id=sent.order_id)))
        assert (await answer).error == ""

    run(story)


def test_an_answer_may_come_on_the_next_stream() -> None:
    async def story(operator: Operator) -> None:
        first = await connected(operator)
        answer = operator.order(SUSPEND)
        sent = await first.next_order()
        await first.close()
        second = await connected(operator)
        second.send(report(pb.OrderAnswer(order_id=sent.order_id)))
        assert (await answer).error == ""

    run(story)


def test_a_stream_ends_when_its_token_is_rejected_later() -> None:
    async def story(operator: Operator) -> None:
        operator.tokens["secret"] = Principal(POD, "orders", uid="1", valid_for_s=0.05)
        sidecar = await connected(operator)
        await connected(operator)
        await sidecar.end()
        last = await connected(operator)
        operator.tokens["secret"] = Unauthenticated("pod orders-0 was deleted")
        assert await last.end() == (grpc.StatusCode.UNAUTHENTICATED, "pod orders-0 was deleted")
        assert list(operator.fleet.connected) == []

    run(story)


def test_a_stream_ends_when_its_pod_belongs_to_another_group() -> None:
    async def story(operator: Operator) -> None:
        operator.tokens["secret"] = Principal(POD, "orders", uid="1", valid_for_s=0.05)
        sidecar = await connected(operator)
        operator.tokens["secret"] = Principal(POD, "others", uid="1", valid_for_s=0.05)
        assert (await sidecar.end())[0] is grpc.StatusCode.ABORTED

    run(story)


def test_a_stream_outlives_repeated_authentication() -> None:
    async def story(operator: Operator) -> None:
        operator.tokens["secret"] = Principal(POD, "orders", uid="1", valid_for_s=0.01)
        sidecar = await connected(operator)
        async with operator.authenticated_again:
            await operator.authenticated_again.wait_for(lambda: operator.authentications >= 5)
        answer = operator.order(SUSPEND)
        sent = await sidecar.next_order()
        sidecar.send(report(pb.OrderAnswer(order_id=sent.order_id)))
        assert (await answer).error == ""

    run(story)


def test_closing_sends_all_sidecars_to_the_next_leader() -> None:
    async def story(operator: Operator) -> None:
        sidecar = await connected(operator)
        operator.fleet.close()
        code, message = await sidecar.end()
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "stopping" in message
        assert (await Sidecar(operator).end())[0] is grpc.StatusCode.UNAVAILABLE

    run(story)
