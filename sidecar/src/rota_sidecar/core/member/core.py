"""
What the member is made of, and the steps from which its behaviour is put together.

Used by the modules beside it, each of which knows one side of that behaviour; nobody else gets to see it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.core.member.holdings import Holdings
from rota_sidecar.core.member.identity import NO_GENERATION, Identity, Remembered, Wanted
from rota_sidecar.core.member.interests import Interests
from rota_sidecar.core.member.offset_calls import OffsetCalls
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.core.member.pulse import Pulse, backoff_ms
from rota_sidecar.core.member.requests import Requests

FIND_TIMEOUT_MS = 10_000
GOODBYE_TIMEOUT_MS = 2_000


class Ending(NamedTuple):
    """It was told to end, and by when."""

    deadline_ms: int
    reason: str
    final: bool
    leave_static: bool
    # How long LeaveGroup may take, after the deadline.
    goodbye_ms: int


class Core:
    """One member. `now_ms` is the time of the event that is looked at, `actions` what it has led to so far."""

    def __init__(
        self, config: MemberConfig, subscription: Subscription, strategies: tuple[Strategy, ...]
    ) -> None:
        self.config = config
        self.interests = Interests(subscription, strategies)
        self.holdings = Holdings()
        self.identity = Identity()
        self.pulse = Pulse(config)
        self.requests = Requests(config)
        self.offset_calls = OffsetCalls()
        self.state: st.State = st.Down()
        self.now_ms = 0
        self.actions: list[do.Action] = []
        # Who it was before a crash, until that was tried.
        self.remembered: Remembered | None = None
        # What the group was told of it last.
        self.told = Wanted()
        self.ending: Ending | None = None
        # Why it joins, for the coordinator's log.
        self.reason = ""
        # A search that was answered, and nothing lost since.
        self.is_connected = False
        self._calls = 0
        self._said = ""
        self._missing: tuple[str, ...] = ()

    def call(self) -> int:
        """A number that no call had before."""
        self._calls += 1
        return self._calls

    def send(self, request: pb.JoinGroupRequest | pb.SyncGroupRequest, within_ms: int) -> int:
        """Ask; the number of the call."""
        call = self.call()
        self.actions.append(do.Send(call, request, within_ms))
        return call

    # Searching

    def search(self, attempt: int = 0) -> st.Search:
        """Begin a search."""
        self.is_connected = False
        call = self.call()
        self.actions.append(do.Find(call, min(FIND_TIMEOUT_MS, self.config.request_timeout_ms)))
        return st.Search(call, attempt)

    def search_later(self, search: st.Search) -> st.Search:
        """It found nothing."""
        return st.Search(None, search.attempt + 1, self.now_ms + backoff_ms(self.config, search.attempt))

    def lose_coordinator(self, reason: str) -> None:
        """Whoever coordinates the group, it is not who was asked."""
        was_connected, self.is_connected = self.is_connected, False
        self.pulse.call = None
        match self.state:
            case st.Joining() | st.Syncing():
                self.complain(reason)
                self.state = st.Discover(self.search())
            case st.Stable() | st.Revoking() as state:
                self.complain(reason)
                self.state = st.Rediscover(self.search(), state)
            case st.Down() | st.Stopped():
                self.say_goodbye_no_more()
            case st.Discover() | st.Rediscover():
                assert not was_connected

    # Joining

    def join(self, attempt: int = 0) -> None:
        """Come to the next round, as soon as it is known what to ask for."""
        if not self.interests.is_known:
            self.state = st.Joining(None, attempt)
            return
        self.told = self.interests.wanted
        request = self.requests.join(self.identity, self.interests, self.holdings, self.reason)
        call = self.send(request, self.config.join_timeout_ms)
        self.state = st.Joining(call, attempt)

    def join_later(self, attempt: int, reason: str) -> None:
        """Come again; at once the first time, then after longer and longer times."""
        self.reason = reason
        if attempt == 0:
            self.join(1)
        else:
            retry_ms = self.now_ms + backoff_ms(self.config, attempt - 1)
            self.state = st.Joining(None, attempt + 1, retry_ms)

    def sync(self, assignments: Iterable[pb.Assignment] = (), leader: str = "") -> None:
        """Ask for the assignment; the leader brings everybody's."""
        request = self.requests.sync(self.identity, list(assignments))
        call = self.send(request, self.config.join_timeout_ms)
        self.state = st.Syncing(call, self.now_ms, leader)

    # Partitions

    def assign(self, partitions: frozenset[Partition]) -> None:
        """Have these from now on, if any."""
        tenure = self.holdings.begin(partitions, self.identity)
        self.actions.append(do.Assign(tenure, partitions))

    def revoke(self, partitions: frozenset[Partition], then: st.Then, deadline_ms: int) -> st.Revoking:
        """Have the application let go."""
        number = self.call()
        self.actions.append(do.Revoke(number, partitions, deadline_ms))
        return st.Revoking(number, partitions, deadline_ms, then)

    def lose(self, reason: str) -> None:
        """Have nothing any more, without having been asked."""
        lost = self.holdings.end(list(self.holdings.held))
        if lost:
            self.actions.append(do.Lose(lost, reason))

    # Being somebody

    def be_nobody(self, reason: str) -> None:
        """The group knows this member no longer."""
        self.lose(reason)
        self.holdings.forget_generation()
        self.pulse.call = None
        self.identity = Identity()
        self.actions.append(do.Forget())

    def be_in_no_generation(self, reason: str) -> None:
        """The group has gone on without this member, and still knows its id."""
        self.lose(reason)
        self.holdings.forget_generation()
        self.pulse.call = None
        self.identity = Identity(self.identity.member_id)
        self.remember()

    def remember(self) -> None:
        """Keep who it is."""
        identity = self.identity
        remembered = Remembered(identity.member_id)
        if identity.generation != NO_GENERATION:
            of_group = self.interests.of_group if identity.leads else frozenset()
            remembered = Remembered(
                identity.member_id,
                identity.generation,
                identity.strategy,
                identity.leads,
                self.told,
                of_group,
            )
        self.actions.append(do.Remember(remembered))

    # Ending

    def depart(self, ending: Ending) -> None:
        """With nothing in hand any more, say goodbye and be a member no more."""
        self.end(ending.reason, final=ending.final, failed=False, leave_static=ending.leave_static)

    def fail(self, reason: str, *, leave: bool) -> None:
        """End because of something that only others can mend; the others need not wait for this member."""
        self.lose(reason)
        if not leave:
            self.is_connected = False
        self.end(reason, final=True, failed=True, leave_static=False)

    def end(self, reason: str, *, final: bool, failed: bool, leave_static: bool) -> None:
        """Stop, or be down."""
        leaves = self.config.instance_id is None or leave_static
        goodbye = None
        within_ms = GOODBYE_TIMEOUT_MS if self.ending is None else self.ending.goodbye_ms
        if leaves and self.is_connected and self.identity.member_id:
            goodbye = self.call()
            request = self.requests.leave(self.identity, reason)
            self.actions.append(do.Send(goodbye, request, within_ms))
            self.actions.append(do.Forget())
        self.holdings.forget_generation()
        # Who has not said goodbye may come back as who it was.
        self.identity = Identity() if goodbye is not None else Identity(self.identity.member_id)
        self.ending, self.pulse.call = None, None
        self.state = st.Stopped(goodbye, reason, failed) if final else st.Down(goodbye)
        if goodbye is None:
            self.say_goodbye_no_more()

    def say_goodbye_no_more(self) -> None:
        """The goodbye was heard, or nobody is there to hear it."""
        self.is_connected = False
        match self.state:
            case st.Stopped() as state:
                self.state = st.Stopped(None, state.reason, state.failed)
                self.actions.append(do.Ended(state.reason, state.failed))
            case _:
                self.state = st.Down()

    # Saying what is wrong

    def complain(self, sentence: str) -> None:
        """Say it, unless that was the last thing said."""
        if sentence != self._said:
            self._said = sentence
            self.actions.append(do.Problem(sentence))

    def be_content(self) -> None:
        """All is well: whatever goes wrong from here on is worth saying."""
        self._said = ""

    def look_for_missing(self) -> None:
        """Say which topics do not exist, each time that others do not."""
        missing, before = self.interests.missing, self._missing
        self._missing = missing
        if missing and missing != before:
            names = ", ".join(missing)
            self.actions.append(
                do.Problem(
                    f"group {self.config.group_id} subscribes to what does not exist: {names}; "
                    "create it, or correct the name (it is looked for again and again)"
                )
            )
