"""Session streams without a server: the client's side, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rota_coordinator.rpc.sessions import Session, Sessions
from rota_coordinator.security.access_control import AuthorizedCaller, Rules
from rota_coordinator.security.authenticator import AnonymousAuthenticator
from rota_coordinator.security.instances import Instances
from rota_coordinator.security.policy import AllowAll
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import FutureCall
from tests.conformance.server import FRAMES
from tests.coordinator.virtual import Virtual, play

HOST = "/127.0.0.1"


@dataclass(slots=True)
class Stream:
    """The client's side of one stream: what it sends, and what it has read. A driver for the vocabulary of the cases."""

    sessions: Sessions
    caller: AuthorizedCaller
    name: str = "stream"
    read: list[pb.SessionResponse] = field(default_factory=list)
    # Cleared: it reads nothing.
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    session: Session = field(init=False)
    running: "asyncio.Task[None]" = field(init=False)
    _frames: "asyncio.Queue[pb.SessionRequest | None]" = field(default_factory=asyncio.Queue)
    _open: "dict[int, asyncio.Future[pb.SessionResponse]]" = field(default_factory=dict)
    _last_id: int = 0

    def __post_init__(self) -> None:
        self.reads.set()
        self.session = Session(self.sessions, self.caller, HOST)
        self.running = asyncio.ensure_future(self.session.run(self._sent(), self._receive))

    def ask(self, request: Message) -> "asyncio.Future[pb.SessionResponse]":
        """Send a frame; the frame that answers it."""
        self._last_id += 1
        frame = pb.SessionRequest(request_id=self._last_id)
        getattr(frame, FRAMES[type(request)]).CopyFrom(request)
        self._open[self._last_id] = asyncio.get_running_loop().create_future()
        self._frames.put_nowait(frame)
        return self._open[self._last_id]

    def send(self, request: Message) -> FutureCall:
        return FutureCall(asyncio.ensure_future(self._answer(request)))

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def close(self) -> None:
        """Say nothing more."""
        self._frames.put_nowait(None)

    @property
    def notices(self) -> list[pb.RebalanceNotice]:
        return [each.rebalance_notice for each in self.read if each.HasField("rebalance_notice")]

    @property
    def members(self) -> set[str]:
        """Return the members that are notified on this stream."""
        return {member_id for _, member_id in self.session.members}

    async def _answer(self, request: Message) -> Message:
        frame = await self.ask(request)
        kind = frame.WhichOneof("response")
        assert kind is not None
        answer: Message = getattr(frame, kind)
        return answer

    async def _sent(self) -> AsyncIterator[pb.SessionRequest]:
        while (frame := await self._frames.get()) is not None:
            yield frame
            await asyncio.sleep(0)  # as from a network: what is due comes between two frames

    async def _receive(self, frame: pb.SessionResponse) -> None:
        await self.reads.wait()
        self.read.append(frame)
        if frame.request_id:
            self._open.pop(frame.request_id).set_result(frame)


def streams(body: Callable[[Virtual, Callable[[], Stream]], Coroutine[None, None, None]]) -> None:
    """Run a body with a service, and a way to open streams to it."""

    async def run() -> None:
        registry = Sessions()
        virtual = Virtual(notify=registry.notify, member_removed=registry.forget)
        await virtual.start()
        opened: list[Stream] = []

        def stream() -> Stream:
            rules = Rules(AllowAll(), Instances())
            caller = AuthorizedCaller(
                virtual.service, rules, AnonymousAuthenticator.PRINCIPAL, lambda _denial: None
            )
            opened.append(Stream(registry, caller))
            return opened[-1]

        await body(virtual, stream)
        for each in opened:
            each.reads.set()
            each.close()
        await asyncio.gather(*(each.running for each in opened), return_exceptions=True)

    play(run)
