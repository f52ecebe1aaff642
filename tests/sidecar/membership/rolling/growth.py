"""
Topics that grow and topics that begin to match a pattern, seen by a group of processes.

Run on both engines, with static and with dynamic members, by tests/sidecar/membership/test_growth.py and
tests/kafka/test_sidecar_growth.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import wait_for
from tests.support.sidecar import WITHIN_S, Sidecar, running, settle

PARTITIONS = 3
# Longer than a test: partitions of a member that is away get no owner by the end of its session.
SESSION = "--session-timeout-ms=60000"


@dataclass(frozen=True)
class Cluster:
    """Backend of the group, and the way to create topics there."""

    servers: str
    make_topic: Callable[[str, int], None]
    grow_topic: Callable[[str, int], None]


def growth(folder: Path, cluster: Cluster, group: str, *, is_static: bool) -> None:
    """Every partition that exists gets an owner, also those added while the leader, or all members, are away."""
    cluster.make_topic(f"{group}-a", PARTITIONS)
    members = [sidecar(folder, cluster, group, name, is_static=is_static) for name in ("one", "two")]
    with running(*members):
        all_owned(members, PARTITIONS)
        cluster.grow_topic(f"{group}-a", PARTITIONS + 1)
        all_owned(members, PARTITIONS + 1)
        cluster.make_topic(f"{group}-b", 1)
        all_owned(members, PARTITIONS + 2)
        (leader,) = [member for member in members if is_leader(member)]
        leader.kill()
        cluster.grow_topic(f"{group}-a", PARTITIONS + 2)
        leader.start()
        all_owned(members, PARTITIONS + 3)
        for member in members:
            member.kill()
        cluster.make_topic(f"{group}-c", 1)
        for member in members:
            member.start()
        all_owned(members, PARTITIONS + 4)


def sidecar(folder: Path, cluster: Cluster, group: str, name: str, *, is_static: bool) -> Sidecar:
    """A static member returns by its instance id alone, a dynamic one by its state folder."""
    identity = f"--group-instance-id={name}" if is_static else f"--state-folder={folder}/{name}"
    flags = [f"--topic-pattern={group}-.*", SESSION, identity]
    return Sidecar(folder, cluster.servers, group, flags, name=name)


def is_leader(member: Sidecar) -> bool:
    """By what it said when it joined last."""
    return bool([event for event in member.events if event["event"] == "joined"][-1]["leads"])


def all_owned(members: list[Sidecar], number: int) -> None:
    """Return when so many partitions are owned, each once, and the group has settled."""

    def holds() -> bool:
        return sorted(len(member.partitions) for member in members) == [number // 2, number - number // 2]

    wait_for(f"{number} partitions are owned", holds, within_s=WITHIN_S)
    settle(*members)
    assert len(set().union(*(member.partitions for member in members))) == number
