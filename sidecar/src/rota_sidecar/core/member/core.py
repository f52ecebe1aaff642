"""
State of the member core, and the transitions that its modules share: find the coordinator, join, revoke, end.

`member` calls `rounds`, `liveness` and `offsets` for each event; they change the state only through `Core`.
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
    """An End command under way. The member revokes until `deadline_ms`, then leaves the group."""

    deadline_ms: int
    reason: str
    final: bool
    leave_static: bool
    # Timeout in ms of the LeaveGroup request, from the deadline on.
    leave_timeout_ms: int
    is_succeeded: bool = False


class Core:
    """State of one member. `now_ms` is the time of the current event, `actions` the actions that it has caused so far."""

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
        # Membership of the process before this one; None once it was tried.
        self.saved: SavedMembership | None = None
        # Topics and strategies of the last JoinGroup request.
        self.joined_with = JoinMetadata()
        self.ending: PendingEnd | None = None
        # Reason of the next JoinGroup request, for the coordinator's log.
        self.reason = ""
        # True from CoordinatorFound until the connection is lost.
        self.is_connected = False
        # Another process has taken the instance id.
        self.is_fenced = False
        self._calls = 0
        self._last_problem = ""
        self._missing: tuple[str, ...] = ()

    def call(self) -> int:
        """Return the next call number; numbers rise by 1."""
        self._calls += 1
        return self._calls

    def send(self, request: pb.JoinGroupRequest | pb.SyncGroupRequest, within_ms: int) -> int:
        """Send a request; return the number of the call."""
        call = self.call()
        self.actions.append(do.SendRequest(call, request, within_ms))
        return call

    # Searching

    def search(self, attempt: int = 0) -> st.Search:
        """Begin to find the coordinator."""
        self.is_connected = False
        call = self.call()
        self.actions.append(do.FindCoordinator(call, min(FIND_TIMEOUT_MS, self.config.request_timeout_ms)))
        return st.Search(call, attempt)

    def search_later(self, search: st.Search) -> st.Search:
        """Schedule the next attempt to find the coordinator, with exponential backoff."""
        return st.Search(None, search.attempt + 1, self.now_ms + backoff_ms(self.config, search.attempt))

    def lose_coordinator(self, reason: str) -> None:
        """Mark the coordinator as unknown and find it again."""
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
        """Send JoinGroup; with a pattern, wait until the topics are known."""
        if not self.subscription.is_known:
            self.state = st.Joining(None, attempt)
            return
        self.joined_with = self.subscription.join_metadata
        request = self.requests.join(self.identity, self.subscription, self.owned, self.reason)
        call = self.send(request, self.config.join_timeout_ms)
        self.state = st.Joining(call, attempt)

    def join_later(self, attempt: int, reason: str) -> None:
        """Join again: immediately at the first attempt, then with exponential backoff."""
        self.reason = reason
        if attempt == 0:
            self.join(1)
        else:
            retry_ms = self.now_ms + backoff_ms(self.config, attempt - 1)
            self.state = st.Joining(None, attempt + 1, retry_ms)

    def sync(self, assignments: Iterable[pb.Assignment] = (), leader: str = "") -> None:
        """Send SyncGroup; the leader sends the assignments of all members with it."""
        request = self.requests.sync(self.identity, list(assignments))
        call = self.send(request, self.config.join_timeout_ms)
        self.state = st.Syncing(call, self.now_ms, leader)

    # Partitions

    def assign(self, partitions: frozenset[Partition]) -> None:
        """Take ownership of partitions under a new tenure; the set may be empty."""
        tenure = self.owned.begin(partitions, self.identity)
        self.actions.append(do.Assign(tenure, partitions))

    def revoke(
        self, partitions: frozenset[Partition], then: st.AfterRevocation, deadline_ms: int
    ) -> st.Revoking:
        """Ask the application to release partitions until `deadline_ms`."""
        number = self.call()
        self.actions.append(do.Revoke(number, partitions, deadline_ms))
        return st.Revoking(number, partitions, deadline_ms, then)

    def lose(self, reason: str) -> None:
        """Drop all partitions without a revocation."""
        lost = self.owned.end(list(self.owned.held))
        if lost:
            self.actions.append(do.Lost(lost, reason))

    # Identity

    def reset_member_id(self, reason: str) -> None:
        """Drop the member id, the generation and all partitions: the group no longer knows this member."""
        self.lose(reason)
        self.owned.forget_generation()
        self.heartbeat_timer.call = None
        self.identity = Identity()
        self.actions.append(do.DeleteMembership())

    def reset_generation(self, reason: str) -> None:
        """Drop the generation and all partitions, and keep the member id: the group continued without this member."""
        self.lose(reason)
        self.owned.forget_generation()
        self.heartbeat_timer.call = None
        self.identity = Identity(self.identity.member_id)
        self.save_membership()

    def save_membership(self) -> None:
        """Save the membership in the state file."""
        self.actions.append(do.SaveMembership(self._present_membership()))

    def _present_membership(self) -> SavedMembership:
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
        return saved

    # Ending

    def end_now(self, ending: PendingEnd, *, is_settled: bool = False) -> None:
        """Finish an End command, after all partitions were released. `is_settled`: in a generation, and in good order."""
        gives_up = ending.is_succeeded and self._may_give_up(is_settled=is_settled)
        if ending.is_succeeded:
            self.actions.append(do.DeleteMembership())
        if gives_up:
            self.actions.append(do.GiveUpMembership(self._present_membership()))
        self.end(
            ending.reason,
            final=ending.final,
            failed=False,
            leave_static=ending.leave_static,
            is_given_up=gives_up,
        )

    def _may_give_up(self, *, is_settled: bool) -> bool:
        """
        Return whether another process may go on under the member id and the generation of this one.

        A commit of this process that is still under way would overwrite its commits. A static member needs none of this: its
        successor gets another member id, which fences such a commit.
        """
        has_generation = bool(self.identity.member_id) and self.identity.generation != NO_GENERATION
        is_settled = is_settled and self.is_connected and not self.offset_calls.has_commits
        return self.config.instance_id is None and has_generation and is_settled

    def fail(self, reason: str, *, leave: bool) -> None:
        """Stop after an error that retrying cannot correct. With `leave`, send LeaveGroup, so that no member waits for this one."""
        self.lose(reason)
        if not leave:
            self.is_connected = False
        self.end(reason, final=True, failed=True, leave_static=False)

    def end(
        self, reason: str, *, final: bool, failed: bool, leave_static: bool, is_given_up: bool = False
    ) -> None:
        """Go to Stopped if `final`, else to Down; send LeaveGroup unless the member stays in the group: static, or `is_given_up`."""
        leaves = (self.config.instance_id is None and not is_given_up) or leave_static
        leave_call = None
        within_ms = LEAVE_TIMEOUT_MS if self.ending is None else self.ending.leave_timeout_ms
        if leaves and self.is_connected and self.identity.member_id:
            leave_call = self.call()
            request = self.requests.leave(self.identity, reason)
            self.actions.append(do.SendRequest(leave_call, request, within_ms))
            self.actions.append(do.DeleteMembership())
        self.owned.forget_generation()
        # A member that did not leave may resume under its member id, unless another process does.
        is_over = leave_call is not None or is_given_up
        self.identity = Identity() if is_over else Identity(self.identity.member_id)
        self.ending, self.heartbeat_timer.call = None, None
        self.state = st.Stopped(leave_call, reason, failed) if final else st.Down(leave_call)
        if leave_call is None:
            self.finish_leaving()

    def finish_leaving(self) -> None:
        """Handle the end of LeaveGroup: it was answered, or the coordinator is unreachable."""
        self.is_connected = False
        match self.state:
            case st.Stopped() as state:
                self.state = st.Stopped(None, state.reason, state.failed)
                self.actions.append(do.Ended(state.reason, state.failed, self.is_fenced))
            case _:
                self.state = st.Down()

    # Problems

    def report_problem(self, message: str) -> None:
        """Report a problem, unless it was the last one reported."""
        if message != self._last_problem:
            self._last_problem = message
            self.actions.append(do.Problem(message))

    def clear_problem(self) -> None:
        """Forget the last problem, so that its next occurrence is reported again."""
        self._last_problem = ""

    def report_missing_topics(self) -> None:
        """Report subscribed topics that do not exist, each time that the set changes."""
        missing, before = self.subscription.missing, self._missing
        self._missing = missing
        if missing and missing != before:
            names = ", ".join(missing)
            self.actions.append(
                do.Problem(
                    f"group {self.config.group_id} subscribes to topics that do not exist: {names}; "
                    "create them or correct the names (the sidecar keeps looking for them)"
                )
            )
