"""
Decides which pod is which static member, where pods have no stable names: the instances `<group>-<n>` of a Deployment.

`assigned` returns the new holders after a look at the pods, `scaled_away` the pods whose place no successor takes. The shell writes
the holders to the cluster before it tells a pod its instance, so that the next leader gives no instance to a second pod.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


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


def assigned(
    pool: InstancePool, holders: Mapping[str, Holder], pods: Sequence[PodSeen]
) -> Mapping[str, Holder]:
    """
    Return the holders by instance: a pod keeps its instance until it is over, then a waiting pod succeeds it.

    No more instances are held than the pool has, unless a group has just been made smaller. An instance without a holder
    stays in the result as long as a successor may come, because its member is still in the group and has partitions.
    """
    running = {each.holder for each in pods if not each.is_over}
    kept = {name: holder for name, holder in holders.items() if holder in running}
    vacant = sorted((name for name in holders if name not in kept), key=_number)
    unused = iter([name for name in _names(pool) if name not in holders])
    named = set(kept.values())
    for pod in sorted(pods, key=_age):
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


def _names(pool: InstancePool) -> Iterator[str]:
    for number in range(pool.size):
        yield f"{pool.name}-{number}"


def _number(name: str) -> tuple[int, str]:
    number = name.rpartition("-")[2]
    return (int(number) if number.isdecimal() else 0, name)


def _age(pod: PodSeen) -> tuple[str, Holder]:
    return pod.created, pod.holder
