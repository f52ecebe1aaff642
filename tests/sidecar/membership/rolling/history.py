"""
Rules that hold while members are restarted, killed and frozen, as functions of their events and of the hits.

Times are the machine's steady clock, which all processes share. The order of commits and reads is the order in which
the driver asked, and got to see answers.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tests.sidecar.membership.rolling.tenures import CLEAN, DEAD, Cause, Life, Tenure, losses, plans, tenures
from tests.support.sidecar import Partition

# Of what is wrong in the same way.
SHOWN = 3


@dataclass(frozen=True)
class Limits:
    """Limits of the time without an owner: of the backend, and of the members' settings."""

    # Between the end of a tenure in good order and the next one's begin, and more for each generation between.
    clean_ms: int
    round_ms: int
    # After the owner died or froze.
    dead_ms: int


@dataclass(frozen=True)
class Gap:
    """A partition between two owners."""

    before: Tenure
    after: Tenure
    cause: Cause

    @property
    def unowned_ms(self) -> int:
        assert self.before.until_ms is not None
        return self.after.from_ms - self.before.until_ms

    def limit_ms(self, limits: Limits) -> int:
        """Limit of the time without an owner, by cause."""
        if self.cause in DEAD:
            return limits.dead_ms
        rounds = self.after.generation - self.before.until_generation
        return limits.clean_ms + rounds * limits.round_ms


@dataclass(frozen=True)
class Commit:
    """Offsets that a member was told to commit, and what came of that."""

    life: str
    offsets: Mapping[Partition, int]
    asked: int
    # None: nothing was heard of it.
    answered: int | None = None
    refused: Mapping[Partition, str] | None = None
    # Of those that were over when it was asked for: then it is late.
    tenures: Mapping[Partition, int] = field(default_factory=dict)

    @property
    def is_late(self) -> bool:
        return bool(self.tenures)

    @property
    def taken(self) -> Mapping[Partition, int]:
        """Return the offsets that the coordinator acknowledged."""
        if self.refused is None:
            return {}
        return {part: offset for part, offset in self.offsets.items() if part not in self.refused}


@dataclass(frozen=True)
class Read:
    """Committed offsets that a member fetched."""

    life: str
    offsets: Mapping[Partition, int]
    asked: int


@dataclass(frozen=True)
class Start:
    """Position at which an owner began to work, and the position of the former owner."""

    life: str
    tenure: int
    partition: Partition
    offset: int
    reached: int
    # Whose work that was: a life and its tenure; None when nobody had begun before.
    reached_in: tuple[str, int] | None


@dataclass(frozen=True)
class History:
    """Everything that was seen."""

    partitions: Sequence[Partition]
    limits: Limits
    lives: Sequence[Life]
    commits: Sequence[Commit]
    reads: Sequence[Read]
    starts: Sequence[Start]

    @cached_property
    def by_partition(self) -> Mapping[Partition, Sequence[Tenure]]:
        """The tenures of each, as they began."""
        everyone = [tenure for life in self.lives for tenure in tenures(life)]
        everyone.sort(key=lambda tenure: tenure.from_ms)
        return {
            partition: [tenure for tenure in everyone if tenure.partition == partition]
            for partition in self.partitions
        }

    @cached_property
    def gaps(self) -> Sequence[Gap]:
        """From each owner to the next."""
        return [
            Gap(before, after, before.cause)
            for owners in self.by_partition.values()
            for before, after in itertools.pairwise(owners)
            if before.cause is not None
        ]

    def cause_of(self, life: str, tenure: int, partition: Partition) -> Cause | None:
        """Return the cause of that tenure's end; None: it lasts."""
        (found,) = (
            each for each in self.by_partition[partition] if (each.life, each.number) == (life, tenure)
        )
        return found.cause

    def faults(self) -> list[str]:
        """Return the broken rules."""
        rules = (
            assigned_to_two,
            two_owners,
            two_incarnations,
            without_an_owner,
            unowned_too_long,
            lost_for_nothing,
            kept_while_frozen,
            late_commit_taken,
            lowered,
            never_committed,
            repeated,
            skipped,
        )
        return [
            f"{rule.__name__}: {fault}" for rule in rules for fault in itertools.islice(rule(self), SHOWN)
        ]


def assigned_to_two(history: History) -> Iterator[str]:
    """In one generation the group's plan gives a partition to two members."""
    owners: dict[tuple[int, int, Partition], str] = {}
    for life in history.lives:
        for plan in plans(life):
            for partition in sorted(plan.partitions):
                owner = owners.setdefault((plan.incarnation, plan.generation, partition), life.member)
                if owner != life.member:
                    yield f"{partition} to {owner} and {life.member} in generation {plan.generation}"


def two_owners(history: History) -> Iterator[str]:
    """
    Two members have a partition at the same time: each from its `assigned` to its `revoked` or `lost`, or until its
    process was killed or frozen.
    """
    for partition, owners in history.by_partition.items():
        for before, after in itertools.pairwise(owners):
            if before.until_ms is None or before.until_ms > after.from_ms:
                yield f"{partition}: {after.life} has it from {after.from_ms}, {before.life} until {before.until_ms}"


def two_incarnations(history: History) -> Iterator[str]:
    """The group was never deleted, so a generation has one incarnation."""
    seen: dict[int, int] = {}
    for life in history.lives:
        for plan in plans(life):
            incarnation = seen.setdefault(plan.generation, plan.incarnation)
            if incarnation != plan.incarnation or incarnation <= 0:
                yield f"{incarnation} and {plan.incarnation} in generation {plan.generation}"


def without_an_owner(history: History) -> Iterator[str]:
    """At the end a partition has no owner, although the members had enough time."""
    for partition, owners in history.by_partition.items():
        if not owners or owners[-1].cause is not None:
            yield f"{partition}"


def unowned_too_long(history: History) -> Iterator[str]:
    """Longer than promised."""
    for gap in history.gaps:
        limit_ms = gap.limit_ms(history.limits)
        if gap.unowned_ms > limit_ms:
            yield (
                f"{gap.before.partition} for {gap.unowned_ms} ms of {limit_ms}, from {gap.before.life} "
                f"({gap.cause.value}, {gap.before.until_ms}) to {gap.after.life}"
            )


def lost_for_nothing(history: History) -> Iterator[str]:
    """A member that was neither killed nor frozen lost its partitions."""
    for owners in history.by_partition.values():
        for tenure in owners:
            if tenure.cause is Cause.LOST:
                yield f"{tenure.partition} by {tenure.life} at {tenure.until_ms}"


def kept_while_frozen(history: History) -> Iterator[str]:
    """A member that was frozen beyond its session does not report first that it lost all partitions."""
    for life in history.lives:
        for loss in losses(life):
            if loss.said != loss.had:
                yield f"{life.name} had {sorted(loss.had)} and lost {sorted(loss.said)}"


def late_commit_taken(history: History) -> Iterator[str]:
    """A commit for a tenure that was over was acknowledged, or never answered."""
    for commit in history.commits:
        if commit.is_late and (commit.refused is None or commit.taken):
            yield f"{commit.life}: {dict(commit.taken) or 'no answer'}"


def lowered(history: History) -> Iterator[str]:
    """A member fetched less than had been acknowledged before its request."""
    taken = sorted(
        (commit.answered, commit.taken)
        for commit in history.commits
        if commit.answered is not None and commit.taken
    )
    highest: dict[Partition, int] = {}
    for read in sorted(history.reads, key=lambda read: read.asked):
        while taken and taken[0][0] < read.asked:
            for partition, offset in taken.pop(0)[1].items():
                highest[partition] = max(offset, highest.get(partition, offset))
        for partition, offset in read.offsets.items():
            if offset < highest.get(partition, offset):
                yield f"{partition} at {offset} for {read.life}, after {highest[partition]}"


def never_committed(history: History) -> Iterator[str]:
    """A member fetched an offset that no member was to commit for that partition."""
    asked = {
        (partition, offset) for commit in history.commits for partition, offset in commit.offsets.items()
    }
    for read in history.reads:
        for partition, offset in read.offsets.items():
            if (partition, offset) not in asked:
                yield f"{partition} at {offset} for {read.life}"


def repeated(history: History) -> Iterator[str]:
    """A new owner repeats work that the old one had finished before it let go in good order."""
    for start in history.starts:
        if start.reached_in is None or start.offset >= start.reached:
            continue
        cause = history.cause_of(*start.reached_in, start.partition)
        if cause is None or cause in CLEAN:
            yield f"{start.partition}: {start.life} begins at {start.offset}, {start.reached_in[0]} had come to {start.reached}"


def skipped(history: History) -> Iterator[str]:
    """A new owner begins behind what was finished, whatever happened to the old one."""
    for start in history.starts:
        if start.offset > start.reached:
            yield f"{start.partition}: {start.life} begins at {start.offset}, after {start.reached}"
