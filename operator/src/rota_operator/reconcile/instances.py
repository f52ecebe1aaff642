"""
Decides which pod is which static member, where pods have no stable names: the instances `<group>-<n>` of a Deployment.

`assigned` returns the new holders after a look at the pods, `scaled_away` the pods whose place no successor takes, and `hand_overs` those
that have waited for one. The shell writes the holders to the cluster before it tells a pod its instance, so that the next leader gives no
instance to a second pod.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A pod that is deleted is replaced by another one, which its controller creates at the same time, or soon.
REPLACEMENT_MS = 2_000


class Holder(NamedTuple):
    """A pod that has an instance. Pods of one name differ by their uid."""

    pod: str
    uid: str


class InstancePool(NamedTuple):
    """The instances of one group: `<name>-0` to `<name>-<size - 1>`."""

    name: str
    size: int
    # After this time without a sign of life the coordinator has given a member's partitions to others.
    silence_ms_max: int
    # Time that a pod may take to terminate: its grace period, as far as the drain needs it.
    termination_ms: int


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod of the group that the API server knows, and whether its sidecar is connected."""

    holder: Holder
    # RFC 3339, UTC.
    created: str
    is_connected: bool
    # It has been deleted, and may still run.
    is_leaving: bool = False
    # Its containers have ended, its node has been lost for longer than the session timeout, or its sidecar has given its instance up.
    is_over: bool = False
    # Its sidecar reports that it is ready: one without an instance has an application then.
    is_ready: bool = True
    # For how long its sidecar has served its application while it waits for a successor; None: it does not wait.
    awaits_successor_ms: int | None = None


def assigned(
    pool: InstancePool, holders: Mapping[str, Holder], pods: Sequence[PodSeen]
) -> Mapping[str, Holder]:
    """
    Return the holders by instance: a pod keeps its instance until it is over, then a waiting pod succeeds it, one that is ready first.

    No more instances are held than the pool has, unless a group has just been made smaller. An instance without a holder
    stays in the result as long as a successor may come, because its member is still in the group and has partitions.
    """
    running = {each.holder for each in pods if not each.is_over}
    kept = {name: holder for name, holder in holders.items() if holder in running}
    vacant = sorted((name for name in holders if name not in kept), key=_number)
    unused = iter([name for name in _names(pool) if name not in holders])
    named = set(kept.values())
    for pod in sorted(pods, key=lambda each: (not each.is_ready, _age(each))):
        if pod.holder in named or pod.is_over or pod.is_leaving or not pod.is_connected:
            continue
        if len(kept) >= pool.size:
            break
        name = vacant.pop(0) if vacant else next(unused)
        kept[name] = pod.holder
    room = max(0, pool.size - len(kept))
    return {**kept, **{name: holders[name] for name in vacant[:room]}}


def scaled_away(
    pool: InstancePool, holders: Mapping[str, Holder], pods: Sequence[PodSeen]
) -> Sequence[PodSeen]:
    """Return the connected pods that leave while all others that are wanted have their instances: they have no successor."""
    staying = [each for each in pods if not (each.is_leaving or each.is_over)]
    named = set(holders.values())
    if len(staying) < pool.size or any(each.holder not in named for each in staying):
        return ()
    return [
        each
        for each in pods
        if each.is_leaving and not each.is_over and each.is_connected and each.holder in named
    ]


def hand_overs(
    pool: InstancePool, holders: Mapping[str, Holder], pods: Sequence[PodSeen]
) -> Mapping[Holder, bool]:
    """
    Return the pods that are to wait no longer for a successor: True if one is ready, False if none is to come.

    `holders` are those after `assigned`. A pod whose successor is still to start is in neither. Pods that have begun to drain
    are succeeded first; so an order that is not remembered is taken into account once its sidecar has reported.
    """
    named = set(holders.values())
    running = [each for each in pods if not each.is_over]
    nameless = [each for each in running if not each.is_leaving and each.holder not in named]
    with_instance = [each for each in running if each.holder in named]
    leaving = [each for each in with_instance if each.is_leaving and each.is_connected]
    waiting = sorted((each for each in leaving if each.awaits_successor_ms is not None), key=_age)
    unused = max(0, pool.size - len(with_instance))
    vacancies = pool.size - sum(not each.is_leaving for each in with_instance)
    begun = len(leaving) - len(waiting)

    def succeeded_by(count: int) -> int:
        return max(0, min(count - unused, vacancies) - begun)

    ready = succeeded_by(sum(each.is_connected and each.is_ready for each in nameless))
    coming = max(ready, succeeded_by(len(nameless)))
    # A pod that drains, and is not deleted, is not replaced.
    alone = [each for each in pods if each.awaits_successor_ms is not None and each not in waiting]
    late = [each for each in waiting[coming:] if (each.awaits_successor_ms or 0) >= REPLACEMENT_MS]
    return {each.holder: each in waiting[:ready] for each in (*waiting[:ready], *late, *alone)}


def _names(pool: InstancePool) -> Iterator[str]:
    for number in range(pool.size):
        yield f"{pool.name}-{number}"


def _number(name: str) -> tuple[int, str]:
    number = name.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, name)


def _age(pod: PodSeen) -> tuple[str, Holder]:
    return pod.created, pod.holder
