"""
Logs of events as each version of Rota wrote them, kept for ever, as `tests.coordinator.core.group.golden_logs` keeps those of slots.

    .venv/bin/python -m tests.log.golden_logs 0.2.0     # adds the log of a version about to be released
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from google.protobuf import text_format

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.log import Log
from rota_coordinator.core.log.partition import Cleaned
from rota_coordinator.store import batches
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.records_pb2 import Record, RecordBatch
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import TIMEOUT_MS, Engine

FOLDER = Path(__file__).parent / "golden"
CONFIG = LogConfig(epoch_max=2)


def state_of(log: Log) -> str:
    """All that the events say, for people to read and for tests to compare."""
    records = [Record(log_event=event) for event in log.snapshot()]
    return text_format.MessageToString(RecordBatch(records=records), as_utf8=True)


def replayed(log: Iterable[tuple[bytes, int]]) -> Log:
    """Return the state after replaying a log with this version."""
    read = Log(CONFIG)
    for data, checksum in log:
        for record in batches.decode(data, checksum, "a golden log"):
            read.replay(record.log_event)
    return read


def write_story() -> Engine:
    """Topics of each kind and fate, and transactional ids in each state."""
    engine = Engine(CONFIG)
    engine.create(partitions=2, retention_ms=3_600_000, retention_bytes=2**40)
    engine.create("clicks", retention_ms=0, retention_bytes=0)
    engine.grow("clicks", 3)
    compact(engine, "state")
    engine.create("gone", partitions=4)
    engine.delete("gone")
    engine.produce(records=5)
    engine.delete_records(3)
    engine.init("")
    engine.init("forgotten")
    engine.pass_time(CONFIG.producers_expire_ms)

    committed = engine.init("až sem")
    engine.produce(committed, 0)
    engine.ended(committed, commit=True)
    aborted = engine.init("aborted")
    engine.add_group(aborted)
    engine.end(aborted, commit=True, refused=codes.ILLEGAL_GENERATION)
    second_id = engine.init("second id")
    for _ in range(4):
        engine.produce(second_id, 0)
        second_id = engine.ended(second_id, commit=True)
    replaced = engine.init("replaced")
    engine.produce(replaced, 0)
    engine.init("replaced", timeout_ms=TIMEOUT_MS - 1)
    engine.produce(engine.init("silent"), 0)
    engine.pass_time(TIMEOUT_MS)

    open_ = engine.ended(engine.init("open"), commit=False)
    engine.add_group(open_)
    instance = pb.AddOffsetsToTransactionRequest(
        transactional_id="open",
        producer_id=open_.producer_id,
        producer_epoch=open_.epoch,
        group_id="statisch",
        generation_id=2**31 - 1,
        member_id="pod-0",
        group_instance_id="pod-0",
    )
    engine.decide(lambda effects: engine.log.add_offsets(instance, WallMs(engine.now_ms), effects))
    return engine


def compact(engine: Engine, name: str) -> None:
    """A topic that is compacted, and one pass over its first partition."""
    request = pb.CreateTopicsRequest()
    request.topics.add(
        name=name, partitions=2, cleanup_policy=pb.CLEANUP_POLICY_COMPACT, delete_retention_ms=1_000
    )
    engine.decide(lambda effects: engine.log.create_topics(request, engine.topic_id, effects))
    cleaned = Cleaned(until=7, indexed_until=9, tombstones_until=5, tombstones_ms=engine.now_ms)
    engine.decide(lambda effects: engine.log.cleaned(engine.partition(0, name), cleaned, effects))


def written(engine: Engine) -> list[list[Record]]:
    """The records of each write, as the shell hands them to the store."""
    writes = ([Record(log_event=event) for event in effects.events] for effects in engine.writes)
    return [records for records in writes if records]


def add(version: str) -> None:
    """Write the log of this version; one that is there stays as it is."""
    engine = write_story()
    encoded = [batches.encode(records) for records in written(engine)]
    with (FOLDER / f"{version}.log").open("x") as log:
        log.writelines(f"{checksum:08x} {data.hex()}\n" for data, checksum in encoded)
    with (FOLDER / f"{version}.state").open("x") as state:
        state.write(state_of(engine.log))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Keep the log of events that this version writes.")
    parser.add_argument("version")
    add(parser.parse_args().version)
