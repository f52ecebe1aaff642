"""
Judges the partitions of a group: owned or not, progressing, stuck, unattended, or unknown.

Every partition is in exactly one list. One without uncommitted records has nothing to do, and counts as progressing as long as
the sidecar of its owner reports and has an application. In a group that was Ready, an application may start again meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import UNKNOWN
from rota_operator.overview.group import OTHER_CLIENT
from rota_operator.overview.view import GroupView, MemberView, PartitionView
from rota_operator.status.inputs import Progress, ReportedPartition

# Named in a message; the rest is counted.
NAMES_SHOWN = 5
# Time that an application may take to start again before its partitions count as unattended.
RESTART_S = 5


@dataclass(slots=True)
class Judgement:
    """Partitions by what is known of them, each as TOPIC-NUMBER, and with a sentence where one is needed."""

    unowned: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    # Owners whose sidecars do not report.
    silent: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    # Not stuck yet, but no application is attached to the sidecars of their owners.
    unattended: list[str] = field(default_factory=list)
    progressing: int = 0


@dataclass(frozen=True, slots=True)
class Judge:
    """Inputs that all partitions of a group share."""

    progress: Mapping[ReportedPartition, Progress]
    stuck_seconds: int
    now_ms: int
    # The group was Ready before: then an application may start again meanwhile.
    was_ready: bool = False

    def judge(self, group: GroupView) -> Judgement:
        """Judge all partitions of a group."""
        found, members = Judgement(), {member.name: member for member in group.members}
        shown: set[Partition] = set()
        for view in group.partitions:
            partition = Partition(view.topic, view.partition)
            shown.add(partition)
            self._add(found, partition, view, members)
        if group.partitions_left_out:
            self._add_left_out(found, shown, group.partitions_left_out)
        # The list of partitions is cut off, the count is not.
        missing = group.unowned - len(found.unowned)
        found.unowned += ["…"] * max(0, missing)
        return found

    def _add(
        self, found: Judgement, partition: Partition, view: PartitionView, members: Mapping[str, MemberView]
    ) -> None:
        if view.owner is None:
            found.unowned.append(partition.text)
            return
        owner = members.get(view.owner)
        if owner is None or owner.state == UNKNOWN:
            if view.owner not in found.silent:
                found.silent.append(view.owner)
            return
        if owner.state == OTHER_CLIENT:
            # A member that an operator that has just begun to lead has not heard from yet looks the same.
            found.unknown.append(
                f"{partition.text} ({view.owner} has sent no report: it has not connected yet, or is no sidecar of Rota)"
            )
            return
        # Not that of a former owner, which stands still and does not know yet that it is one.
        progress = self.progress.get(ReportedPartition(view.owner, partition))
        self._add_owned(found, partition, progress, view.lag_records, owner)

    def _add_owned(
        self,
        found: Judgement,
        partition: Partition,
        progress: Progress | None,
        lag_records: int | None,
        owner: MemberView | None,
    ) -> None:
        if progress is None:
            found.unknown.append(f"{partition.text} (its owner reports nothing about it)")
        elif lag_records == 0:
            self._add_moving(found, partition, owner)
        elif progress.last_progress_ms is None:
            # A sidecar older than this field.
            found.unknown.append(f"{partition.text} (its sidecar does not report progress)")
        elif self.now_ms - progress.last_progress_ms < self.stuck_seconds * 1000:
            self._add_moving(found, partition, owner)
        else:
            problem = progress.problem or f"no progress for more than {self.stuck_seconds} s"
            found.stuck.append(f"{partition.text}: {problem}")

    def _add_moving(self, found: Judgement, partition: Partition, owner: MemberView | None) -> None:
        """Add a partition that stands still for no reason of its own."""
        if owner is not None and self._is_unattended(owner):
            found.unattended.append(f"{partition.text} ({owner.name})")
        else:
            found.progressing += 1

    def _is_unattended(self, owner: MemberView) -> bool:
        unattached_s = owner.unattached_seconds
        return unattached_s is not None and (not self.was_ready or unattached_s > RESTART_S)

    def _add_left_out(self, found: Judgement, shown: set[Partition], left_out: int) -> None:
        """Judge partitions that the view is too short for, by their reports alone."""
        others = sorted(each for each in self.progress if each.partition not in shown)
        for each in others:
            self._add_owned(found, each.partition, self.progress[each], None, None)
        count = len({each.partition for each in others})
        if count < left_out:
            found.unknown.append(f"{left_out - count} partitions are not listed")


def listed(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    everything = list(names)
    more = len(everything) - NAMES_SHOWN
    return "; ".join(everything[:NAMES_SHOWN]) + (f"; and {more} more" if more > 0 else "")
