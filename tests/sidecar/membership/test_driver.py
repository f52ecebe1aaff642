"""The shell around a member, with an engine that does what no real one can be made to: fail at the wrong moment."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Group, Plan, Topic
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.core.member.identity import JoinMetadata, SavedMembership
from rota_sidecar.core.member.member import Member
from rota_sidecar.core.member.messages import Request, Response
from rota_sidecar.core.member.partitions import Offset
from rota_sidecar.engines.port import Coordination, Disconnected, Refused, Topics, Unreachable
from rota_sidecar.membership import driver as membership
from rota_sidecar.membership.driver import (
    EVENTS_MAX,
    ForeignProtocol,
    MemberEvent,
    Membership,
    MembershipPorts,
    StateChanged,
    StateFileRecovered,
)
from rota_sidecar.membership.leader import Leader
from rota_sidecar.membership.state_file import FILE, Owner, StateFile

STORY_S = 20
REFRESH_S = 0.05
LOCAL = Strategy("all-mine", cooperative=True)
WANTED = JoinMetadata(("a",), (LOCAL.name,))
END = on.End(within_ms=1_000, reason="enough")


class AllMine:
    """Everything for the first."""

    name = LOCAL.name
    cooperative = LOCAL.cooperative

    def assign(self, group: Group) -> Plan:
        first = min(group.members)
        everything = {name: range(topic.partitions) for name, topic in group.topics.items()}
        return {member: everything if member == first else {} for member in group.members}


class FakeCoordinator(Coordination):
    """A coordinator with one member. Whatever a test puts into `breaks` is raised once, by kind of request."""

    def __init__(self) -> None:
        self.breaks: dict[type[Request] | str, list[Exception]] = {}
        self.asked: list[str] = []
        self.leader = "m"
        self.closed = 0
        self.finding: Callable[[], Awaitable[None]] | None = None

    @override
    async def find(self, within_s: float) -> pb.ErrorCode.ValueType:
        self._meet("find", "find")
        if self.finding is not None:
            await self.finding()
        return pb.NONE

    @override
    async def ask(self, request: Request, within_s: float) -> Response:
        self._meet(type(request), type(request).__name__)
        match request:
            case pb.JoinGroupRequest():
                member = pb.Member(member_id="m", metadata=request.protocols[0].metadata)
                return pb.JoinGroupResponse(
                    generation_id=1,
                    protocol_name=request.protocols[0].name,
                    leader=self.leader,
                    member_id="m",
                    members=[member] if self.leader == "m" else [],
                )
            case pb.SyncGroupRequest():
                mine = request.assignments[0].assignment if request.assignments else b""
                return pb.SyncGroupResponse(assignment=mine)
            case pb.HeartbeatRequest():
                return pb.HeartbeatResponse()
            case pb.LeaveGroupRequest():
                return pb.LeaveGroupResponse()
            case pb.CommitOffsetsRequest():
                return pb.CommitOffsetsResponse()
            case pb.FetchOffsetsRequest():
                return pb.FetchOffsetsResponse()

    @override
    async def incarnation(self, within_s: float) -> int | None:
        return 7

    @override
    async def close(self) -> None:
        self.closed += 1

    def _meet(self, kind: type[Request] | str, name: str) -> None:
        self.asked.append(name)
        if self.breaks.get(kind):
            raise self.breaks[kind].pop(0)


class FakeTopics(Topics):
    """One topic. Each look-up takes the next outcome of `outcomes`, the last one for ever."""

    def __init__(self, *outcomes: Exception | Mapping[str, Topic]) -> None:
        self._outcomes = list(outcomes) or [{"a": Topic(2)}]
        self.asked: list[Collection[str] | None] = []

    @override
    async def describe(self, names: Collection[str] | None, within_s: float) -> Mapping[str, Topic]:
        self.asked.append(names)
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @override
    async def close(self) -> None:
        self.asked.append(["closed"])


class Story:
    """A membership, and what it told."""

    def __init__(
        self,
        coordinator: FakeCoordinator | None = None,
        topics: FakeTopics | None = None,
        state_file: StateFile | None = None,
        protocol: Callable[[float], Awaitable[str]] | None = None,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self.coordinator, self.topics = coordinator or FakeCoordinator(), topics or FakeTopics()
        # The leader's own look-ups must not take the outcomes that a test has put in a row.
        leader = Leader("g", self.coordinator, FakeTopics(), {LOCAL.name: AllMine()}, lambda: 0)
        engine = MembershipPorts(
            self.coordinator, self.topics, leader, lambda: 0.5, refresh_s, state_file, protocol
        )
        self.events: list[MemberEvent] = []
        self._news = asyncio.Event()
        member = Member(MemberConfig("g"), Subscription(("a",)), (LOCAL,))
        self.membership = Membership(member, engine, self._on_event)
        self._running = asyncio.create_task(self.membership.run(None))

    def _on_event(self, event: MemberEvent) -> None:
        self.events.append(event)
        if isinstance(event, do.Revoke):
            self.membership.post(on.PartitionsReleased(event.revocation))
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._news.clear()
            await self._news.wait()

    async def until_assigned(self) -> None:
        await self.until(lambda: any(isinstance(event, do.Assign) for event in self.events))

    async def end(self) -> do.Ended:
        self.membership.post(END)
        return await self._running

    async def outcome(self) -> do.Ended:
        return await self._running

    def has_event(self, event: MemberEvent) -> bool:
        return event in self.events

    @property
    def problems(self) -> Sequence[str]:
        return [event.message for event in self.events if isinstance(event, do.Problem)]


def run(body: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(STORY_S):
            await body

    asyncio.run(bounded())


def test_it_joins_leads_and_ends_and_leaves_nothing_running() -> None:
    async def body() -> None:
        story = Story()
        await story.until_assigned()
        ended = await story.end()
        assert ended == do.Ended("enough", failed=False)
        states = [event.state for event in story.events if isinstance(event, StateChanged)]
        assert states == ["Discover", "Joining", "Syncing", "Stable", "Revoking", "Stopped"]
        assert story.coordinator.asked[-1] == "LeaveGroupRequest"
        assert (story.coordinator.closed, story.topics.asked[-1]) == (1, ["closed"])
        assert asyncio.all_tasks() - {asyncio.current_task()} == set()
        story.membership.post(on.Tick())  # too late, and harmless

    run(body())


def test_who_does_not_answer_is_asked_again_and_who_refuses_ends_it() -> None:
    async def body() -> None:
        coordinator = FakeCoordinator()
        coordinator.breaks = {
            "find": [Unreachable("nobody there")],
            pb.JoinGroupRequest: [Unreachable("no answer")],
            pb.CommitOffsetsRequest: [Refused("not you")],
        }
        story = Story(coordinator)
        await story.until_assigned()
        assert list(story.problems) == ["nobody there", "no answer"]
        partition, tenure = next(iter(story.membership.member.held.items()))
        story.membership.post(on.Commit(1, {partition: Offset(tenure.number, 5)}))
        assert await story.outcome() == do.Ended("not you", failed=True)

    run(body())


@pytest.mark.parametrize("kind", ["find", pb.JoinGroupRequest])
def test_what_nobody_expected_ends_it_with_all_that_helps_to_find_it(kind: type[Request] | str) -> None:
    async def body() -> None:
        coordinator = FakeCoordinator()
        coordinator.breaks = {kind: [ZeroDivisionError("a fault")]}
        story = Story(coordinator)
        with pytest.raises(ZeroDivisionError, match="a fault"):
            await story.outcome()
        assert coordinator.closed == 1

    run(body())


def test_a_listener_that_breaks_ends_it_too() -> None:
    async def body() -> None:
        story = Story()
        story.events = None  # type: ignore[assignment]
        with pytest.raises(AttributeError):
            await story.outcome()

    run(body())


def test_more_events_than_can_be_looked_at_end_it() -> None:
    async def body() -> None:
        story = Story()
        await story.until_assigned()
        for _ in range(EVENTS_MAX + 1):
            story.membership.post(on.Tick())
        with pytest.raises(RuntimeError, match=f"{EVENTS_MAX} events wait"):
            await story.outcome()

    run(body())


def test_a_search_that_nobody_waits_for_any_more_is_given_up_before_the_next() -> None:
    async def body() -> None:
        coordinator = FakeCoordinator()
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def for_ever() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        coordinator.finding = for_ever
        story = Story(coordinator)
        await begun.wait()
        story.membership.post(on.End(within_ms=0, reason="for now", final=False))
        await story.until(lambda: StateChanged("Down") in story.events)
        coordinator.finding = None
        story.membership.post(on.Start())
        await story.until_assigned()
        assert cancelled.is_set()
        await story.end()

    run(body())


def test_topics_are_looked_at_again_and_again_and_a_failure_is_said_once() -> None:
    async def body() -> None:
        away = Unreachable("no log there")
        there = {"a": Topic(2)}
        topics = FakeTopics(away, away, there, away, away, there, there)
        story = Story(topics=topics)
        await story.until_assigned()
        async with asyncio.timeout(STORY_S):
            while len(topics.asked) < 7:
                await asyncio.sleep(0)
        assert list(story.problems) == ["topics cannot be described: no log there"] * 2
        assert set(map(str, topics.asked)) == {"frozenset({'a'})"}
        await story.end()

    run(body())


def test_a_topic_that_does_not_exist_yet_is_looked_for_sooner_than_others_are_refreshed() -> None:
    async def body() -> None:
        topics = FakeTopics({}, {}, {"a": Topic(2)})
        story = Story(topics=topics, refresh_s=10 * STORY_S)
        # Time is up before the interval is.
        async with asyncio.timeout(STORY_S):
            while len(topics.asked) < 3:
                await asyncio.sleep(0)
        await story.end()

    run(body())


def test_other_topics_are_looked_at_at_once() -> None:
    async def body() -> None:
        story = Story()
        await story.until_assigned()
        story.membership.post(on.Subscribe(Subscription(pattern="b.*")))
        await story.until(lambda: None in story.topics.asked)
        await story.end()

    run(body())


def test_what_the_connection_says_reaches_the_member() -> None:
    async def body() -> None:
        story = Story()
        await story.until_assigned()
        for notice, join_again in (
            (pb.GoAway(group_id="g", address="other:7070"), False),
            (Disconnected("the line is dead"), False),
            (pb.RebalanceNotice(group_id="g", member_id="m", generation_id=1), True),
        ):
            story.events.clear()
            story.membership.on_coordinator_event(notice)
            changed = StateChanged("Joining" if join_again else "Rediscover")
            await story.until(partial(story.has_event, changed))
            await story.until(lambda: StateChanged("Stable") in story.events)
        await story.end()

    run(body())


def test_a_plan_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        story = Story()
        order = do.ComputeAssignment(
            call=99, member_id="m", strategy=LOCAL.name, generation=1, members=(), within_ms=10
        )

        async def think(_: Leader, __: do.ComputeAssignment) -> on.AssignmentComputed:
            await asyncio.Event().wait()
            raise AssertionError

        await story.until_assigned()
        monkeypatch.setattr(Leader, "lead", think)
        posted: list[on.Event] = []
        monkeypatch.setattr(story.membership, "post", posted.append)
        await story.membership._lead(order)
        monkeypatch.undo()
        late = "the strategy all-mine computed no assignment within 0.01 s: correct it or choose another"
        # The topics are described meanwhile, as often as they are refreshed.
        assert [each for each in posted if isinstance(each, on.CallFailed)] == [on.CallFailed(99, late)]
        await story.end()

    run(body())


def test_a_round_without_a_leader_has_the_protocol_looked_at() -> None:
    async def body() -> None:
        answers: list[Exception | str] = [Unreachable("not now"), "classic", "", "consumer"]
        asked = asyncio.Semaphore(0)

        async def protocol(within_s: float) -> str:
            asked.release()
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        coordinator = FakeCoordinator()
        coordinator.leader = ""
        story = Story(coordinator, protocol=protocol)
        for _ in range(4):
            await asked.acquire()
            notice = pb.RebalanceNotice(group_id="g", member_id="m", generation_id=1)
            await story.until(lambda: StateChanged("Stable") in story.events)
            story.events.remove(StateChanged("Stable"))
            if answers:
                story.membership.on_coordinator_event(notice)
        await story.until(lambda: ForeignProtocol("consumer") in story.events)
        assert "the type of the group cannot be read: not now" in story.problems
        await story.end()

    run(body())


def test_who_it_is_is_kept_while_it_lives_and_no_longer(tmp_path: Path) -> None:
    async def body() -> None:
        file = StateFile(tmp_path, Owner("g", None))
        story = Story(state_file=file)
        await story.until_assigned()
        async with asyncio.timeout(STORY_S):
            while (kept := file.read()[0]) is None or kept.generation < 0:
                await asyncio.sleep(0)
        assert (kept.member_id, kept.leads, kept.group_topics) == ("m", True, frozenset({"a"}))
        await story.end()
        assert file.read() == (None, "")

    run(body())


def test_a_disk_that_does_not_take_it_is_a_problem_until_it_does_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        file = StateFile(tmp_path, Owner("g", None))
        (tmp_path / f"{FILE}.new").mkdir()
        story = Story(state_file=file)
        await story.until(lambda: any("cannot be written" in said for said in story.problems))
        await story.until_assigned()
        (tmp_path / f"{FILE}.new").rmdir()
        await story.until(lambda: StateFileRecovered() in story.events)
        assert file.read()[0] is not None
        assert len(story.problems) == 1
        assert await story.end() == do.Ended("enough", failed=False)
        assert story.events.count(StateFileRecovered()) == 1

    monkeypatch.setattr(membership, "STATE_RETRY_S", REFRESH_S)
    run(body())


def test_who_was_remembered_comes_back_without_a_join() -> None:
    async def body() -> None:
        coordinator = FakeCoordinator()
        events: list[MemberEvent] = []
        leader = Leader("g", coordinator, FakeTopics(), {}, lambda: 0)
        engine = MembershipPorts(coordinator, FakeTopics(), leader, lambda: 0.5, REFRESH_S)
        member = Member(MemberConfig("g"), Subscription(("a",)), (LOCAL,))
        membership = Membership(member, engine, events.append)
        running = asyncio.create_task(
            membership.run(SavedMembership("m", 4, LOCAL.name, join_metadata=WANTED))
        )
        while StateChanged("Stable") not in events:
            await asyncio.sleep(0)
        assert (member.identity.member_id, member.identity.generation) == ("m", 4)
        assert coordinator.asked[:2] == ["find", "SyncGroupRequest"]
        membership.post(END)
        await running

    run(body())
