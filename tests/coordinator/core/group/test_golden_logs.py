"""Logs of earlier versions are replayed, and records of later versions do no harm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_coordinator.core.group.groups import Groups
from rota_coordinator.store import batches
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.coordinator.core.group.golden_logs import CONFIG, FOLDER, read, replayed, state_of, write_story

LOGS = sorted(FOLDER.glob("*.log"))
# Field 1000, length-delimited: a record, or a field of one, that no version has yet.
UNKNOWN = b"\xc2\x3e\x05later"


def kinds(log: Iterator[tuple[bytes, int]]) -> set[str | None]:
    return {
        record.WhichOneof("record")
        for data, checksum in log
        for record in batches.decode(data, checksum, "a golden log")
    }


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_what_a_version_wrote_is_read_for_ever(log: Path) -> None:
    assert state_of(replayed(read(log))) == log.with_suffix(".state").read_text()


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_it_says_the_same_when_it_was_compacted(log: Path) -> None:
    again = Groups(CONFIG)
    for record in replayed(read(log)).snapshot():
        again.replay(record)
    assert state_of(again) == log.with_suffix(".state").read_text()


def test_every_kind_of_record_is_in_a_golden_log() -> None:
    # What stands in the log of topics and transactions is in golden logs of its own: tests/log/golden.
    known = {field.name for field in Record.DESCRIPTOR.oneofs_by_name["record"].fields} - {"log_event"}
    kept: set[str | None] = set()
    for log in LOGS:
        kept |= kinds(read(log))
    assert kept == known, "add a log: python -m tests.coordinator.core.group.golden_logs VERSION"


def test_records_and_fields_of_later_versions_are_passed_over() -> None:
    story = write_story()
    later = Groups(CONFIG)
    for record in (record for records in story.log for record in records):
        later.replay(Record.FromString(UNKNOWN))
        kind = record.WhichOneof("record")
        assert kind is not None
        grown = Record()
        body = getattr(grown, kind)
        body.MergeFromString(getattr(record, kind).SerializeToString() + UNKNOWN)
        later.replay(grown)
    # An old reader that writes a snapshot keeps what it does not know, where it is inside of what it knows.
    without = Groups(CONFIG)
    for record in later.snapshot():
        record_known = Record()
        record_known.CopyFrom(record)
        record_known.DiscardUnknownFields()
        without.replay(record_known)
    assert state_of(without) == state_of(story.groups)
