"""Times for which partitions had no owner, as the applications saw them."""

from collections.abc import Iterable, Mapping, Sequence

from tests.sidecar.delivery.rounds.history import Gap, Hit, at

# The sidecar's word, and from when on the application has what it is about, or has it no more.
BEGINS, ENDS = "assigned", ("revoking", "lost", "ended")

# When, what, and which partitions.
Notice = tuple[int, str, frozenset[int]]


def gaps_of(
    lives: Iterable[tuple[str, Sequence[Notice]]], hits: Sequence[Hit], limits: Mapping[str, int]
) -> Sequence[Gap]:
    """From one application's end to the next one's begin; each belongs to the hit before that."""
    story = sorted(((notice, name) for name, life in lives for notice in life), key=lambda each: each[0][0])
    owners: dict[int, set[str]] = {}
    ended_ms: dict[int, int] = {}
    gaps: list[Gap] = []
    for (at_ms, what, partitions), name in story:
        for partition in sorted(partitions):
            having = owners.setdefault(partition, set())
            if what == BEGINS and name not in having:
                beside = min(having, default="")
                if beside or partition in ended_ms:
                    from_ms = at_ms if beside else ended_ms[partition]
                    gaps.append(gap(partition, from_ms, at_ms, hits, limits)._replace(beside=beside))
                having.add(name)
            elif what in ENDS and name in having:
                having.remove(name)
                ended_ms[partition] = at_ms
    return gaps


def gap(partition: int, from_ms: int, until_ms: int, hits: Sequence[Hit], limits: Mapping[str, int]) -> Gap:
    """One."""
    hit = max((hit for hit in hits if hit.at_ms <= until_ms), default=Hit("nothing", 0), key=at)
    return Gap(hit.what, partition, until_ms - from_ms, limits.get(hit.what))
