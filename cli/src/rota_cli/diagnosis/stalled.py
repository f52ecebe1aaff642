"""
Name owned partitions that may not be consumed, by what the coordinator and the log show. Pure.

Settings of members (auto_offset_reset, the dead-letter topic) are not visible there: a message names the visible state,
and the setting that decides.
"""

from collections.abc import Iterable, Iterator

from rota_cli.diagnosis.lag import PartitionLag
from rota_cli.output.units import format_partitions


def describe_stalled(group_id: str, found: Iterable[PartitionLag]) -> Iterator[str]:
    """
    Describe each reason once, with all partitions that it applies to.

    >>> from rota.records import TopicPartition
    >>> from rota_cli.clusters.model import OffsetRange
    >>> lag = PartitionLag(TopicPartition("orders", 0), 1, OffsetRange(6, 9), "a")
    >>> next(describe_stalled("shop", [lag]))[:69]
    'orders[0]: the committed offset is no longer in the log, its records '
    """
    owned = [each for each in found if each.owner is not None and each.log_range is not None]
    for holds, reason in REASONS:
        if named := [each.partition for each in owned if holds(each)]:
            yield f"{format_partitions(named)}: {reason}, or until `rota groups reset {group_id}` sets an offset"


def _is_expired(lag: PartitionLag) -> bool:
    return lag.committed is not None and lag.log_range is not None and lag.committed < lag.log_range.start


def _is_past_end(lag: PartitionLag) -> bool:
    return lag.committed is not None and lag.log_range is not None and lag.committed > lag.log_range.end


def _has_no_offset(lag: PartitionLag) -> bool:
    return lag.committed is None and lag.log_range is not None and lag.log_range.start < lag.log_range.end


NOWHERE_ELSE = "a member with --on-offset-expired=none waits until the application seeks"
EXPIRED = f"the committed offset is no longer in the log, its records were deleted: {NOWHERE_ELSE}"
PAST_END = f"the committed offset is beyond the end of the log: {NOWHERE_ELSE}"
NO_OFFSET = (
    "there are records but no committed offset: a member with its own offset store continues, one with "
    "auto_offset_reset=none waits until the application seeks"
)
REASONS = ((_is_expired, EXPIRED), (_is_past_end, PAST_END), (_has_no_offset, NO_OFFSET))
