"""
Which member of the group each pod was, in which generation: a pod that was fenced comes back as another one.

Pods of a Deployment succeed each other as one member, so two of them may have a partition in one generation.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from tests.sidecar.membership.rolling.tenures import Life
from tests.support.sidecar import Event


class Noted(NamedTuple):
    """Instance of a static member, or id of a dynamic one, and the generation in which it was seen first."""

    generation: int
    member: str


class Members:
    """Members by pod, in the order in which they were seen."""

    def __init__(self) -> None:
        self._by_pod: dict[str, list[Noted]] = {}

    def note(self, generation: int, members: Mapping[str, str]) -> None:
        """Remember the members of pods, as they are in this generation."""
        for pod, member in members.items():
            noted = self._by_pod.setdefault(pod, [])
            if not noted or noted[-1].member != member:
                noted.append(Noted(generation, member))

    def knows(self, pods: Collection[str]) -> bool:
        """Return whether the members of all these pods are known."""
        return self._by_pod.keys() >= {*pods}

    def lives(self, name: str, pod: str, events: Sequence[Event]) -> Iterator[Life]:
        """Divide the life of an application among the members that its pod was; of an unknown one it is the pod's."""
        noted = self._by_pod.get(pod, [Noted(0, pod)])
        for this, following in zip_longest(noted, noted[1:]):
            until = len(events) if following is None else beginning(following.generation, events)
            yield Life(name, this.member, events[:until], ())
            events = events[until:]


def beginning(generation: int, events: Sequence[Event]) -> int:
    """Return the index of the first event of this generation or a later one."""
    found = (number for number, each in enumerate(events) if each.get("generation", -1) >= generation)
    return next(found, len(events))
