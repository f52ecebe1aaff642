"""
Format of plans in ConfigMaps: a table in CSV with one line for each partition, and the hash of the plan.

A plan that is too large for one ConfigMap goes on in others, NAME-2 and so on, each with the ids of its own topics. Reading checks
everything that a hand may have changed, because a plan is executed as it was reviewed or not at all.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rota_operator.overview.assignment import Partition
from rota_operator.resets.plan import PARTITIONS_MAX, Plan, PlannedOffset, ResetRefused

COLUMNS = ("topic", "partition", "oldOffset", "newOffset", "oldTime", "newTime", "remark")
HEADER = ",".join(COLUMNS) + "\n"
TABLE, GROUP_ID, HASH, PART = "plan.csv", "groupId", "planHash", "part"
SKIPPED, REPEATED, TOPIC_IDS = "skippedRecords", "repeatedRecords", "topicIds"
# Of table and topic ids in one ConfigMap, which has at most 1 MiB.
PART_BYTES_MAX = 700_000
# Of a plan; PARTITIONS_MAX partitions, each of a topic of its own with the longest name, need about 220.
PARTS_MAX = 250
# Of a topic in TOPIC_IDS, beside its name and its id: quotes, colon, comma and spaces.
TOPIC_BYTES = 8
NAME_LENGTH_MAX = 200
NUMBER = re.compile(r"[0-9]{1,18}")
UNDO = "undo"
ANEW = "make a new dry run with another requestId"


class PlanDocument(NamedTuple):
    """ConfigMap of a plan, or of a part of it."""

    name: str
    data: Mapping[str, str]


def plan_name(name: str, request_id: str, *suffix: str) -> str:
    """
    Return the name of a plan's ConfigMap: <name>-reset-<requestId>.

    A requestId that cannot be part of a name is made one, and its hash keeps two of them apart.
    """
    wanted = request_id.lower()
    usable = re.sub(r"[^-a-z0-9]+", "-", wanted).strip("-")
    if usable != request_id or len(usable) > NAME_LENGTH_MAX - len(name):
        digest = hashlib.sha256(request_id.encode()).hexdigest()[:8]
        usable = f"{usable[: NAME_LENGTH_MAX - len(name) - 9]}-{digest}".strip("-")
    return "-".join((name, "reset", usable, *suffix))


def part_name(name: str, part: int) -> str:
    """Return the name of the n-th ConfigMap of a plan, counted from 1."""
    return name if part == 1 else f"{name}-{part}"


def documents_of(plan: Plan, name: str, timestamp: Callable[[int], str]) -> Sequence[PlanDocument]:
    """Return the ConfigMaps of a plan; `timestamp` formats a time in ms."""
    parts = list(_parts(plan, timestamp))
    head = {
        GROUP_ID: plan.group_id,
        HASH: plan.hash,
        SKIPPED: str(plan.skipped),
        REPEATED: str(plan.repeated),
    }
    return [
        PlanDocument(part_name(name, number), {**head, **part, PART: f"{number}/{len(parts)}"})
        for number, part in enumerate(parts, 1)
    ]


def _parts(plan: Plan, timestamp: Callable[[int], str]) -> Iterator[Mapping[str, str]]:
    """Yield tables, each with its header, and the ids of the topics in them; together at most PART_BYTES_MAX."""
    lines, topic_ids, size = [HEADER], dict[str, str](), len(HEADER)
    for row, line in zip(plan.rows, _lines(plan.rows, timestamp), strict=True):
        topic = row.partition.topic
        topic_id = plan.topic_ids.get(topic, "")
        topic_bytes = len(topic) + len(topic_id) + TOPIC_BYTES if topic_id else 0
        needed = len(line) + (0 if topic in topic_ids else topic_bytes)
        if size + needed > PART_BYTES_MAX:
            yield _part(lines, topic_ids)
            lines, topic_ids, size = [HEADER], {}, len(HEADER)
            needed = len(line) + topic_bytes
        if topic_id:
            topic_ids[topic] = topic_id
        lines.append(line)
        size += needed
    yield _part(lines, topic_ids)


def _part(lines: Iterable[str], topic_ids: Mapping[str, str]) -> Mapping[str, str]:
    return {TABLE: "".join(lines), TOPIC_IDS: json.dumps(topic_ids, sort_keys=True)}


def _lines(rows: Iterable[PlannedOffset], timestamp: Callable[[int], str]) -> Iterator[str]:
    """Yield the line of each row."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for row in rows:
        times = ("" if at is None else timestamp(at) for at in (row.old_time_ms, row.new_time_ms))
        old = "" if row.old is None else row.old
        writer.writerow((*row.partition, old, row.new, *times, row.remark))
        yield written.getvalue()
        written.seek(0)
        written.truncate()


def part_count(name: str, data: Mapping[str, str] | None) -> int:
    """Return the number of ConfigMaps of a plan, by its first one. Raises ResetRefused."""
    part = re.fullmatch(r"1/([0-9]{1,3})", _checked(name, data)[PART])
    if part is None or int(part[1]) == 0:
        raise ResetRefused(f"ConfigMap {name} is not the first one of a plan; name the first one")
    if int(part[1]) > PARTS_MAX:
        raise ResetRefused(
            f"ConfigMap {name} is the first one of {part[1]}, and a plan has at most {PARTS_MAX}; {ANEW}"
        )
    return int(part[1])


def plan_in(name: str, parts: Sequence[Mapping[str, str] | None], group_id: str, plan_hash: str = "") -> Plan:
    """
    Read a plan from its ConfigMaps, in their order; None: one does not exist.

    `plan_hash` is that of the dry run; empty: the one in the ConfigMap. Raises ResetRefused.
    """
    rows: list[PlannedOffset] = []
    topic_ids: dict[str, str] = {}
    first = _checked(name, parts[0] if parts else None)
    for number, part in enumerate(parts, 1):
        here = part_name(name, number)
        data = _checked(here, part)
        if data[HASH] != first[HASH] or data[PART] != f"{number}/{len(parts)}":
            raise ResetRefused(f"ConfigMap {here} is part of another plan; {ANEW}")
        rows += _rows(here, data[TABLE])
        topic_ids |= _topic_ids(here, data[TOPIC_IDS])
        if len(rows) > PARTITIONS_MAX:
            raise ResetRefused(
                f"ConfigMap {name} has a plan of more than {PARTITIONS_MAX} partitions; name fewer topics in "
                "spec.offsets.reset.topics, and set another requestId"
            )
    if first[GROUP_ID] != group_id:
        raise ResetRefused(
            f"ConfigMap {name} is a plan of group {first[GROUP_ID]}, not of {group_id}; name a plan of this group"
        )
    plan = Plan(
        group_id,
        tuple(rows),
        skipped=_number(name, SKIPPED, first[SKIPPED]),
        repeated=_number(name, REPEATED, first[REPEATED]),
        topic_ids=topic_ids,
    )
    found_hash = plan.hash
    if found_hash != first[HASH] or plan_hash not in ("", found_hash):
        raise ResetRefused(
            f"ConfigMap {name} was changed after the plan was made: its hash is another one; {ANEW}"
        )
    return plan


def _checked(name: str, data: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the data of a ConfigMap that has all keys of a plan. Raises ResetRefused."""
    if data is None:
        raise ResetRefused(f"ConfigMap {name} with the plan does not exist; {ANEW}")
    missing = [key for key in (TABLE, GROUP_ID, HASH, PART, SKIPPED, REPEATED, TOPIC_IDS) if key not in data]
    if missing:
        raise ResetRefused(
            f"ConfigMap {name} is not a plan of an offset reset: it lacks {missing[0]}; {ANEW}"
        )
    return data


def _rows(name: str, table: str) -> Iterator[PlannedOffset]:
    lines = csv.reader(io.StringIO(table))
    if tuple(next(lines, ())) != COLUMNS:
        raise ResetRefused(f"ConfigMap {name}: the first line of {TABLE} must be {','.join(COLUMNS)}; {ANEW}")
    for number, line in enumerate(lines, 2):
        where = f"{name}, line {number}"
        if len(line) != len(COLUMNS):
            raise ResetRefused(f"ConfigMap {where} of {TABLE} must have {len(COLUMNS)} values; {ANEW}")
        topic, partition, old, new, _, _, remark = line
        yield PlannedOffset(
            Partition(topic, _number(where, "partition", partition)),
            _number(where, "oldOffset", old) if old else None,
            _number(where, "newOffset", new),
            remark=remark,
        )


def _number(where: str, what: str, text: str) -> int:
    if NUMBER.fullmatch(text) is None:
        raise ResetRefused(f"ConfigMap {where}: {what} must be an integer from 0; got {text[:50]!r}; {ANEW}")
    return int(text)


def _topic_ids(name: str, text: str) -> Mapping[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise ResetRefused(f"ConfigMap {name}: {TOPIC_IDS} must be an object of topic ids; {ANEW}")
    return found
