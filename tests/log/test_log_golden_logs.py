"""Logs of topics and transactions from earlier versions are replayed, and records of later versions do no harm."""

from pathlib import Path

import pytest

from rota_coordinator.core.log.log import Log
from rota_coordinator.store import batches
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent
from tests.coordinator.core.group.golden_logs import read
from tests.log.golden_logs import CONFIG, FOLDER, replayed, state_of, write_story

LOGS = sorted(FOLDER.glob("*.log"))
# Field 1000, length-delimited: an event, or a field of one, that no version has yet.
UNKNOWN = b"\xc2\x3e\x05later"


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_what_a_version_wrote_is_read_for_ever(log: Path) -> None:
    assert state_of(replayed(read(log))) == log.with_suffix(".state").read_text()


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_it_says_the_same_when_it_was_compacted(log: Path) -> None:
    again = Log(CONFIG)
    for event in replayed(read(log)).snapshot():
        again.replay(event)
    assert state_of(again) == log.with_suffix(".state").read_text()


def test_every_kind_of_event_is_in_a_golden_log() -> None:
    known = {field.name for field in LogEvent.DESCRIPTOR.oneofs_by_name["event"].fields}
    kept = {
        record.log_event.WhichOneof("event")
        for log in LOGS
        for data, checksum in read(log)
        for record in batches.decode(data, checksum, "a golden log")
    }
    assert kept == known, "add a log: python -m tests.log.golden_logs VERSION"


def test_events_and_fields_of_later_versions_are_passed_over() -> None:
    engine = write_story()
    later = Log(CONFIG)
    for event in engine.events:
        later.replay(LogEvent.FromString(UNKNOWN))
        kind = event.WhichOneof("event")
        assert kind is not None
        grown = LogEvent()
        body = getattr(grown, kind)
        body.MergeFromString(getattr(event, kind).SerializeToString() + UNKNOWN)
        later.replay(grown)
    without = Log(CONFIG)
    for event in later.snapshot():
        known = LogEvent()
        known.CopyFrom(event)
        known.DiscardUnknownFields()
        without.replay(known)
    assert state_of(without) == state_of(engine.log)
