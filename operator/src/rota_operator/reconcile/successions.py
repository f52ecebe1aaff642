"""
Decides which pods of a Deployment become dynamic members, and which pod takes over the membership of one that ends.

`orders` returns what to order now, from the pods and the last reports of their sidecars alone, so that every leader decides the same. The
shell, `cluster.succession_orders`, sends the orders one at a time to each pod. A membership goes to the successor that its report names, and to
no other pod.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rota_operator.reconcile.instances import REPLACEMENT_MS, Holder

# A sidecar that ends is heard until then; after this time without a stream a pod that is deleted has no member any more.
STREAM_MS = 5_000
# An application attaches within it, or the pod joins without one: a group without members would not show what is wrong.
UNREADY_MS = 5_000


class MemberPool(NamedTuple):
    """Members that a group is to have."""

    size: int
    # After this time without a sign of life the coordinator has given a member's partitions to others.
    silence_ms_max: int


class GivenUp(NamedTuple):
    """A membership that a sidecar has given up."""

    member_id: str
    # Name of the only pod that may use it.
    successor: str


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod of the group that the API server knows, and the last report of its sidecar."""

    holder: Holder
    # RFC 3339, UTC.
    created: str
    is_connected: bool
    # Time since its sidecar was heard last; since this operator leads, if it never was.
    silent_ms: int = 0
    # It has been deleted, and may still run.
    is_leaving: bool = False
    # Its containers have ended, or do not run yet.
    is_running: bool = True
    # Its sidecar waits for a Join or a TakeOver.
    awaits_join: bool = False
    # For how long it has reported so.
    awaits_join_ms: int = 0
    # Its sidecar is ready: one that waits has an application and a subscription then.
    is_ready: bool = False
    is_draining: bool = False
    # For how long its sidecar has served its application while it waits for a successor; None: it does not wait.
    awaits_successor_ms: int | None = None
    # Name of the pod that it is to hand over to; empty: none.
    successor: str = ""
    # Its sidecar has given its membership up, and has none.
    has_given_up: bool = False
    # Empty: it is not a member.
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """Let a waiting pod join the group."""

    pod: Holder


@dataclass(frozen=True, slots=True)
class HandOver:
    """End the wait of a pod that ends: another one takes its membership over, or none does and it leaves the group."""

    pod: Holder
    # None: no pod succeeds it.
    successor: Holder | None


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Let the successor go on with a membership."""

    pod: Holder
    member_id: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Let a member that stays remove a membership from the group, whose successor has ended before it has taken it over."""

    pod: Holder
    member_id: str


Order: TypeAlias = Join | HandOver | TakeOver | RemoveMember


def orders(pool: MemberPool, pods: Sequence[PodState], given_up: Sequence[GivenUp]) -> Sequence[Order]:
    """
    Return the orders that bring the group to as many members as are wanted, at most one for each pod.

    `given_up` are the memberships that were given up within the session timeout, of pods that are gone too. A pod of which nothing is
    known may be a member, so none joins for it; and it may be about to wait for a membership, so none is told that no successor comes.
    """
    by_name = {each.holder.pod: each for each in pods}
    in_use = {each.member_id for each in pods if each.is_connected}
    # A pod may go on to report what its successor has taken over, and has given up itself since.
    given_up = [each for each in given_up if each.member_id not in in_use]
    take_overs = list(_take_overs(by_name, given_up))
    handing_over = [each for each in pods if _is_handing_over(each)]
    named = [*(each.successor for each in given_up), *(each.successor for each in handing_over)]
    reserved = {name for name in named if _may_succeed(by_name.get(name))}
    free = sorted((each for each in pods if _is_available(each, reserved)), key=_age)
    waiting = [each for each in free if each.is_ready]
    unready = [each for each in free if not each.is_ready and each.awaits_join_ms >= UNREADY_MS]
    staying = sum(_stays(pool, each) for each in pods)
    needed = max(0, pool.size - staying - len(reserved))
    ending = [each for each in pods if _is_ending(each)]
    stranded = [each for each in handing_over if each.successor not in reserved]
    hand_overs = [*_hand_overs(needed, [*stranded, *ending], waiting, sum(_may_come(each) for each in pods))]
    succeeded = {each.successor for each in hand_overs}
    without = {each.pod for each in hand_overs if each.successor is None}
    served = sum(each.holder not in without for each in (*stranded, *ending))
    perhaps = sum(_may_stay(pool, each) for each in pods)
    joining = [each for each in (*waiting, *unready) if each.holder not in succeeded][
        : max(0, needed - served - perhaps)
    ]
    removals = _removals(pool, pods, by_name, given_up)
    return [*take_overs, *hand_overs, *(Join(each.holder) for each in joining), *removals]


def _take_overs(by_name: Mapping[str, PodState], given_up: Sequence[GivenUp]) -> Iterator[TakeOver]:
    """Yield one membership for each successor: a second one follows when the first one is answered."""
    ordered: set[str] = set()
    for each in given_up:
        pod = by_name.get(each.successor)
        if pod is None or not pod.is_connected or pod.has_given_up:
            continue
        if each.successor not in ordered:
            ordered.add(each.successor)
            yield TakeOver(pod.holder, each.member_id)


def _removals(
    pool: MemberPool, pods: Sequence[PodState], by_name: Mapping[str, PodState], given_up: Sequence[GivenUp]
) -> Iterator[RemoveMember]:
    """
    Yield one membership whose only user has ended: no other pod may use it, and the group would wait for its session timeout.

    A successor that has taken it over before has ended as well, or is on a lost node, and is fenced.
    """
    ended = [each for each in given_up if (pod := by_name.get(each.successor)) is None or not pod.is_running]
    members = [each for each in pods if each.is_connected and each.member_id and _stays(pool, each)]
    named = {each.successor for each in given_up}
    by = next((each for each in sorted(members, key=_age) if each.holder.pod not in named), None)
    if ended and by is not None:
        yield RemoveMember(by.holder, ended[0].member_id)


def _hand_overs(
    needed: int, ending: Sequence[PodState], waiting: Sequence[PodState], coming: int
) -> Iterator[HandOver]:
    """
    Yield the ends of waits. Pods whose successor has ended come first, then the oldest.

    A pod waits on while its successor may still come: one that starts, or one that its controller is about to create.
    """
    awaiting = sorted(
        (each for each in ending if each.successor or each.awaits_successor_ms is not None), key=_turn
    )
    leaving = [each for each in awaiting if each.is_leaving]
    for pod, successor in zip(leaving[:needed], waiting, strict=False):
        yield HandOver(pod.holder, successor.holder)
    for pod in leaving[min(needed, len(waiting)) : needed][coming:]:
        if pod.awaits_successor_ms is None or pod.awaits_successor_ms >= REPLACEMENT_MS:
            yield HandOver(pod.holder, None)
    # A pod that drains, and is not deleted, is not replaced.
    for pod in [*leaving[needed:], *(each for each in awaiting if not each.is_leaving)]:
        yield HandOver(pod.holder, None)


def _is_handing_over(pod: PodState) -> bool:
    """Return whether a pod is to give its membership up, and has not yet."""
    return bool(pod.successor) and pod.is_connected and not pod.has_given_up


def _may_succeed(pod: PodState | None) -> bool:
    """Return whether a successor is there, and is not a member of its own."""
    return (
        pod is not None
        and not pod.is_leaving
        and pod.is_running
        and (pod.awaits_join or not pod.is_connected)
    )


def _is_available(pod: PodState, reserved: set[str]) -> bool:
    """Return whether a pod can become a member now, apart from its application."""
    is_free = pod.holder.pod not in reserved and not pod.is_leaving and not pod.is_draining
    return is_free and pod.is_connected and pod.awaits_join


def _may_come(pod: PodState) -> bool:
    """Return whether a pod may soon wait for a membership: it starts, or has no application yet."""
    if pod.is_leaving:
        return False
    if pod.is_connected and pod.awaits_join:
        return not pod.is_ready
    return not pod.member_id and not pod.has_given_up


def _stays(pool: MemberPool, pod: PodState) -> bool:
    """Return whether a pod is a member that stays. One that is not heard is a member until its session has timed out."""
    if pod.is_leaving or not pod.is_running or pod.has_given_up:
        return False
    if pod.is_connected:
        # A sidecar that has just connected is no member, and does not know yet whether it waits.
        return bool(pod.member_id) and not pod.awaits_join and pod.awaits_successor_ms is None
    return bool(pod.member_id) and pod.silent_ms <= pool.silence_ms_max


def _may_stay(pool: MemberPool, pod: PodState) -> bool:
    """Return whether a pod that is not heard, or has just connected, may have joined by itself, and stays."""
    if pod.is_leaving or not pod.is_running or pod.has_given_up or pod.awaits_join:
        return False
    return not pod.member_id and pod.silent_ms <= pool.silence_ms_max


def _is_ending(pod: PodState) -> bool:
    """Return whether a pod that ends is still a member, and serves its application."""
    if pod.successor:
        return False
    if pod.awaits_successor_ms is not None and pod.is_connected:
        return True
    if not pod.is_leaving or not pod.is_running or pod.has_given_up:
        return False
    is_recent = pod.is_connected or pod.silent_ms <= STREAM_MS
    return is_recent and not pod.awaits_join and not pod.is_draining


def _age(pod: PodState) -> tuple[str, Holder]:
    return pod.created, pod.holder


def _turn(pod: PodState) -> tuple[bool, str, Holder]:
    return not pod.successor, pod.created, pod.holder
