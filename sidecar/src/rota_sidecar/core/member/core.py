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
from rota_sidecar.core.member.heartbeat_timer import HeartbeatTimer, backoff_ms
from rota_sidecar.core.member.identity import NO_GENERATION, Identity, JoinMetadata, SavedMembership
from rota_sidecar.core.member.offset_calls import OffsetCalls
from rota_sidecar.core.member.owned_partitions import OwnedPartitions
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.core.member.requests import Requests
from rota_sidecar.core.member.subscription_state import SubscriptionState

FIND_TIMEOUT_MS = 10_000
LEAVE_TIMEOUT_MS = 2_000


class PendingEnd(NamedTuple):
    """It was told to end, and by when."""

    deadline_ms: int
    reason: str
    final: bool
    leave_static: bool
    # How long LeaveGroup may take, after the deadline.
    leave_timeout_ms: int


class Core:
    """One member. `now_ms` is the time of the event that is looked at, `actions` what it has led to so far."""

    def __init__(
        self, config: MemberConfig, subscription: Subscription, strategies: tuple[Strategy, ...]
    ) -> None:
        self.config = config
        self.subscription = SubscriptionState(subscription, strategies)
        self.owned = OwnedPartitions()
        self.identity = Identity()
        self.heartbeat_timer = HeartbeatTimer(config)
        self.requests = Requests(config)
        self.offset_calls = OffsetCalls()
        self.state: st.State = st.Down()
        self.now_ms = 0
        self.actions: list[do.Action] = []
        # Who it was before a crash, until that was tried.
        self.saved: SavedMembership | None = None
        # What the group was told of it last.
        self.joined_with = JoinMetadata()
        self.ending: PendingEnd | None = None
        # Why it joins, for the coordinator's log.
        self.reason = ""
        # A search that was answered, and nothing lost since.
        self.is_connected = False
        self._calls = 0
        self._last_problem = ""
        self._missing: tuple[str, ...] = ()

    def call(self) -> int:
        """A number that no call had before."""
        self._calls += 1
        return self._calls

    def send(self, request: pb.JoinGroupRequest | pb.SyncGroupRequest, within_ms: int) -> int:
        """Ask; the number of the call."""
        call = self.call()
        self.actions.append(do.SendRequest(call, request, within_ms))
        return call

    # Searching

    def search(self, attempt: int = 0) -> st.Search:
        """Begin a search."""
        self.is_connected = False
        call = self.call()
        self.actions.append(do.FindCoordinator(call, min(FIND_TIMEOUT_MS, self.config.request_timeout_ms)))
        return st.Search(call, attempt)

    def search_later(self, search: st.Search) -> st.Search:
        """It found nothing."""
        return st.Search(None, search.attempt + 1, self.now_ms + backoff_ms(self.config, search.attempt))

    def lose_coordinator(self, reason: str) -> None:
        """Whoever coordinates the group, it is not who was asked."""
        was_connected, self.is_connected = self.is_connected, False
        self.heartbeat_timer.call = None
        match self.state:
            case st.Joining() | st.Syncing():
                self.report_problem(reason)
                self.state = st.Discover(self.search())
            case st.Stable() | st.Revoking() as state:
                self.report_problem(reason)
                self.state = st.Rediscover(self.search(), state)
            case st.Down() | st.Stopped():
                self.finish_leaving()
            case st.Discover() | st.Rediscover():
                assert not was_connected

    # Joining

    def join(self, attempt: int = 0) -> None:
        """Come to the next round, as soon as it is known what to ask for."""
        if not self.subscription.is_known:
            self.state = st.Joining(None, attempt)
            return
        self.joined_with = self.subscription.join_metadata
        request = self.requests.join(self.identity, self.subscription, self.owned, self.reason)
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
        tenure = self.owned.begin(partitions, self.identity)
        self.actions.append(do.Assign(tenure, partitions))

    def revoke(
        self, partitions: frozenset[Partition], then: st.AfterRevocation, deadline_ms: int
    ) -> st.Revoking:
        """Have the application let go."""
        number = self.call()
        self.actions.append(do.Revoke(number, partitions, deadline_ms))
        return st.Revoking(number, partitions, deadline_ms, then)

    def lose(self, reason: str) -> None:
        """Have nothing any more, without having been asked."""
        lost = self.owned.end(list(self.owned.held))
        if lost:
            self.actions.append(do.Lost(lost, reason))

    # Being somebody

    def reset_member_id(self, reason: str) -> None:
        """The group knows this member no longer."""
        self.lose(reason)
        self.owned.forget_generation()
        self.heartbeat_timer.call = None
        self.identity = Identity()
        self.actions.append(do.DeleteMembership())

    def reset_generation(self, reason: str) -> None:
        """The group has gone on without this member, and still knows its id."""
        self.lose(reason)
        self.owned.forget_generation()
        self.heartbeat_timer.call = None
        self.identity = Identity(self.identity.member_id)
        self.save_membership()

    def save_membership(self) -> None:
        """Keep who it is."""
        identity = self.identity
        saved = SavedMembership(identity.member_id)
        if identity.generation != NO_GENERATION:
            group_topics = self.subscription.group_topics if identity.leads else frozenset()
            saved = SavedMembership(
                identity.member_id,
                identity.generation,
                identity.strategy,
                identity.leads,
                self.joined_with,
                group_topics,
            )
        self.actions.append(do.SaveMembership(saved))

    # Ending

    def end_now(self, ending: PendingEnd) -> None:
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
        leave_call = None
        within_ms = LEAVE_TIMEOUT_MS if self.ending is None else self.ending.leave_timeout_ms
        if leaves and self.is_connected and self.identity.member_id:
            leave_call = self.call()
            request = self.requests.leave(self.identity, reason)
            self.actions.append(do.SendRequest(leave_call, request, within_ms))
            self.actions.append(do.DeleteMembership())
        self.owned.forget_generation()
        # Who has not said goodbye may come back as who it was.
        self.identity = Identity() if leave_call is not None else Identity(self.identity.member_id)
        self.ending, self.heartbeat_timer.call = None, None
        self.state = st.Stopped(leave_call, reason, failed) if final else st.Down(leave_call)
        if leave_call is None:
            self.finish_leaving()

    def finish_leaving(self) -> None:
        """The goodbye was heard, or nobody is there to hear it."""
        self.is_connected = False
        match self.state:
            case st.Stopped() as state:
                self.state = st.Stopped(None, state.reason, state.failed)
                self.actions.append(do.Ended(state.reason, state.failed))
            case _:
                self.state = st.Down()

    # Saying what is wrong

    def report_problem(self, sentence: str) -> None:
        """Say it, unless that was the last thing said."""
        if sentence != self._last_problem:
            self._last_problem = sentence
            self.actions.append(do.Problem(sentence))

    def clear_problem(self) -> None:
        """All is well: whatever goes wrong from here on is worth saying."""
        self._last_problem = ""

    def report_missing_topics(self) -> None:
        """Say which topics do not exist, each time that others do not."""
        missing, before = self.subscription.missing, self._missing
        self._missing = missing
        if missing and missing != before:
            names = ", ".join(missing)
            self.actions.append(
                do.Problem(
                    f"group {self.config.group_id} subscribes to what does not exist: {names}; "
                    "create it, or correct the name (it is looked for again and again)"
                )
            )
