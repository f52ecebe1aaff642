"""Asynchronous commits: requests to the sidecar after failures, order of callbacks, and commits that are not sent again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import errors
from rota.consumer.rejection_log import RejectionLog
from rota.testing import unary_calls
from rota.testing.partition import StoredRecord
from rota.testing.sidecar import MemorySidecar
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from tests.sdk.consumer.fake_sidecar import serving

P0, P1 = rota.TopicPartition("orders", 0), rota.TopicPartition("orders", 1)
POLL_MS = 100


class Refusing:
    """A sidecar whose commits of an offset are refused for good, by partition; it takes them as verdicts all the same."""

    def __init__(self, memory: MemorySidecar, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: set[tuple[int, int]] = set()
        self.sent: list[dict[int, int]] = []
        self._ask = unary_calls.answer
        monkeypatch.setattr(unary_calls, "answer", self.ask)

    def ask(self, sidecar: MemorySidecar, call: str, request: Any) -> Any:  # noqa: ANN401  one of many calls
        answer = self._ask(sidecar, call, request)
        if call == "Commit":
            self.sent.append({each.partition.partition: each.offset for each in answer.offsets})
            for each in answer.offsets:
                if (each.partition.partition, each.offset) in self.refused:
                    each.error_code = answer.error_code = codes.OFFSET_METADATA_TOO_LARGE
        return answer


@pytest.fixture
def memory() -> MemorySidecar:
    made = MemorySidecar("billing")
    made.make_topic("orders", 2)
    for partition in (P0, P1):
        for number in range(4):
            made.append(partition, StoredRecord(None, b"%d" % number, 0, ()))
    return made


@pytest.fixture
def address(tmp_path: Path, memory: MemorySidecar) -> Iterator[str]:
    """Of the sidecar; a verdict that it refuses fails the test."""
    with serving(tmp_path, memory) as (found, _):
        yield found


def read_all(consumer: rota.Consumer) -> None:
    records = 0
    while records < 8:
        records += sum(map(len, consumer.poll(timeout_ms=POLL_MS).values()))


@pytest.mark.process
def test_callbacks_come_in_order_around_a_failure_and_nothing_is_sent_again(
    address: str, memory: MemorySidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar = Refusing(memory, monkeypatch)
    sidecar.refused = {(0, 2)}
    completed: list[tuple[int, errors.RotaError | None]] = []
    with rota.Consumer("orders", sidecar=address, enable_auto_commit=False) as consumer:
        read_all(consumer)
        for offset in (1, 2, 3):
            consumer.commit_async(
                {P0: offset}, lambda done, error: completed.append((done[P0].offset, error))
            )
        while len(completed) < 3:
            consumer.poll(timeout_ms=POLL_MS)
        assert memory.committed()[P0] == 3
    assert [offset for offset, _ in completed] == [1, 2, 3]
    assert [type(error) for _, error in completed] == [type(None), errors.OffsetMetadataTooLarge, type(None)]
    assert sidecar.sent == [{0: 1}, {0: 2}, {0: 3}]


@pytest.mark.process
@pytest.mark.parametrize("waits", [True, False])
def test_what_a_commit_has_settled_gets_no_other_verdict_though_one_partition_was_refused(
    address: str, memory: MemorySidecar, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    sidecar = Refusing(memory, monkeypatch)
    sidecar.refused = {(1, 4)}
    failures: list[errors.RotaError | None] = []
    with rota.Consumer("orders", sidecar=address, enable_auto_commit=False) as consumer:
        read_all(consumer)
        if waits:
            with pytest.raises(errors.OffsetMetadataTooLarge):
                consumer.commit()
        else:
            consumer.commit_async(callback=lambda _, error: failures.append(error))
            while not failures:
                consumer.poll(timeout_ms=POLL_MS)
        consumer.poll(timeout_ms=POLL_MS)
    assert sidecar.sent == [{0: 4, 1: 4}]


def test_refused_verdicts_are_logged_once_for_each_partition(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RejectionLog()
    for offset in range(3):
        refused = [
            pb.DeliverResponse.Refusal(
                partition=pb.TopicPartition(topic="orders", partition=number),
                offset=offset,
                message=f"offset {offset} is already done",
            )
            for number in (0, 1)
        ]
        refusals.log(pb.DeliverResponse(refusals=refused))
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in said] == [
        "the sidecar rejected a verdict on orders[0]",
        "the sidecar rejected a verdict on orders[1]",
    ]
    assert all('verdict="refused"' in line for line in said)
