"""
Format and parse files of committed offsets: `offsets_file.py` reads what `rota groups offsets --export` writes. Pure.

CSV is that of Kafka's `kafka-consumer-groups`, without a header: TOPIC,PARTITION,OFFSET of one group,
GROUP,TOPIC,PARTITION,OFFSET of several. JSON is a list of objects with the same fields, one on each line.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rota.records import TopicPartition
from rota_cli.clusters.port import Offsets
from rota_cli.commands.parsing import INT64_MAX

# Digits of INT64_MAX; Python takes long to convert numbers of many thousand digits.
DIGITS_MAX = 19
ONE_GROUP, SEVERAL_GROUPS = "TOPIC,PARTITION,OFFSET", "GROUP,TOPIC,PARTITION,OFFSET"
FIELDS = ("group", "topic", "partition", "offset")
OBJECT = '{"group": "shop", "topic": "orders", "partition": 0, "offset": 12}'
BLANKS = re.compile(r"[ \t\r\n]*")
# Jackson, by which Kafka writes CSV, quotes each text of more UTF-16 units, or with a character below this one.
UNQUOTED_UNITS_MAX, UNQUOTED_CHARACTER_MIN = 24, "-"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Offset of one partition in a file. `line` counts from 1; `group` is None in the form for one group."""

    line: int
    group: str | None
    partition: TopicPartition
    offset: int


class Malformed(Exception):
    """A line, counted from 1, that has another form than expected."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def format_csv(offsets: Mapping[str, Offsets], *, with_group: bool) -> str:
    """
    Format offsets by group as CSV.

    >>> format_csv({"shop": {TopicPartition("orders", 0): 12}}, with_group=True)
    'shop,orders,0,12\\n'
    """
    lines = (
        ",".join(([_quote(group)] if with_group else []) + [_quote(topic), str(number), str(offset)])
        for group, topic, number, offset in _rows(offsets)
    )
    return "".join(f"{line}\n" for line in lines)


def format_json(offsets: Mapping[str, Offsets]) -> str:
    """Format offsets by group as JSON."""
    objects = (json.dumps(dict(zip(FIELDS, row, strict=True)), ensure_ascii=False) for row in _rows(offsets))
    return "[\n" + ",\n".join(objects) + "\n]\n"


def _rows(offsets: Mapping[str, Offsets]) -> Iterator[tuple[str, str, int, int]]:
    for group in sorted(offsets):
        for (topic, number), offset in sorted(offsets[group].items()):
            yield group, topic, number, offset


def _quote(text: str) -> str:
    is_short = len(text.encode("utf-16-le")) <= 2 * UNQUOTED_UNITS_MAX
    is_plain = is_short and all(each >= UNQUOTED_CHARACTER_MIN for each in text)
    return text if is_plain else '"' + text.replace('"', '""') + '"'


def parse_csv(text: str) -> Iterator[FileEntry]:
    """Yield the entries of a CSV file; blank lines are skipped. Raises Malformed."""
    expected: Sequence[str] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        cells = _cells(number, line)
        if not expected:
            expected = (SEVERAL_GROUPS if len(cells) == len(FIELDS) else ONE_GROUP).split(",")
        if len(cells) != len(expected):
            raise Malformed(number, f"expected {','.join(expected)}, without a header")
        group = cells[0] if len(cells) == len(FIELDS) else None
        topic, partition, offset = cells[-3:]
        yield _entry(number, group, topic, _decimal(partition), _decimal(offset))


def _cells(number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise Malformed(number, f"is not CSV ({error}): expected {ONE_GROUP} or {SEVERAL_GROUPS}") from None


def _decimal(text: str) -> object:
    """Convert a number of digits alone; return any other text as it is."""
    digits = text.strip(" \t\r")
    return int(digits) if re.fullmatch(rf"[0-9]{{1,{DIGITS_MAX}}}", digits) else text


def parse_json(text: str) -> Iterator[FileEntry]:
    """Yield the entries of a JSON file. Raises Malformed."""
    for line, found in _elements(text):
        if not isinstance(found, dict) or {*FIELDS[1:]} - {*found} or {*found} - {*FIELDS}:
            raise Malformed(line, f"expected an object such as {OBJECT}, without other fields")
        if "group" in found and not isinstance(found["group"], str):
            raise Malformed(line, f"expected a group, found {_shown(found['group'])}")
        yield _entry(line, found.get("group"), found["topic"], found["partition"], found["offset"])


def _elements(text: str) -> Iterator[tuple[int, object]]:
    """Yield the elements of a JSON list, each with the line on which it begins."""
    decoder = json.JSONDecoder(object_pairs_hook=_object_of)
    at = _after_blanks(text, 0)
    line = 1 + text.count("\n", 0, at)
    if text[at : at + 1] != "[":
        raise Malformed(line, f"expected a list of objects such as {OBJECT}")
    first = _after_blanks(text, at + 1)
    more = text[first : first + 1] != "]"
    while more:
        begin = _after_blanks(text, at + 1)
        line += text.count("\n", at, begin)
        try:
            found, end = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            raise Malformed(error.lineno, f"is not JSON ({error.msg})") from None
        except (ValueError, RecursionError) as error:
            raise Malformed(line, f"is not JSON ({error})") from None
        yield line, found
        at = _after_blanks(text, end)
        line += text.count("\n", begin, at)
        more = text[at : at + 1] == ","
        if not more and text[at : at + 1] != "]":
            raise Malformed(line, "is not JSON (expected a comma, or the end of the list)")
    rest = text[at:].partition("]")[2].strip()
    if rest:
        raise Malformed(line, "is not JSON (expected nothing after the list)")


def _after_blanks(text: str, at: int) -> int:
    found = BLANKS.match(text, at)
    return at if found is None else found.end()


def _object_of(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"field {name} occurs twice")
        found[name] = value
    return found


def _entry(line: int, group: str | None, topic: object, partition: object, offset: object) -> FileEntry:
    if not isinstance(topic, str) or not topic:
        raise Malformed(line, f"expected a topic, found {_shown(topic)}")
    return FileEntry(
        line,
        group,
        TopicPartition(topic, _number(line, "a partition number", partition)),
        _number(line, "an offset", offset),
    )


def _number(line: int, noun: str, found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= INT64_MAX:
        raise Malformed(line, f"expected {noun} from 0 to {INT64_MAX}, found {_shown(found)}")
    return found


def _shown(found: object) -> str:
    text = json.dumps(found, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}…"
