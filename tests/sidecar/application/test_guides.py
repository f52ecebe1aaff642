"""The guides name all that there is, and their examples run."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.cloud_events import Record, event_of
from rota_sidecar.application.http_verdicts import Answer, outcome_of
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition
from tests.sidecar.application.fakes import P0, batch, batch_slice, handed, rebalance_event
from tests.sidecar.application.talking import SOCKET, Talk, play
from tests.support.tree import REPO

CONSUMER = (REPO / "docs/guide/consumer-service.md").read_text()
HTTP = (REPO / "docs/guide/http-delivery.md").read_text()
PROSE = re.sub(r"```.*?```", "", CONSUMER, flags=re.DOTALL)
# Of gRPC's words and Kafka's, and those for nothing.
UNDOCUMENTED = {
    "REBALANCE_EVENT_KIND_UNSPECIFIED",
    "ORDERING_UNSPECIFIED",
    "PARTITION_ERROR_KIND_UNSPECIFIED",
}


def fields_of(message: Descriptor) -> set[str]:
    # A map is one field, and its entries are a message.
    nested = (fields_of(each) for each in message.nested_types if not each.GetOptions().map_entry)
    return {field.name for field in message.fields}.union(*nested)


def test_every_call_field_and_constant_of_the_contract_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", PROSE))
    file = pb.DESCRIPTOR
    calls = {method.name for method in file.services_by_name["Consumer"].methods}
    fields = set().union(*(fields_of(message) for message in file.message_types_by_name.values()))
    constants = {
        value.name for enum in file.enum_types_by_name.values() for value in enum.values
    } - UNDOCUMENTED
    assert len(calls) == 18
    # What is read is a batch's offset.
    assert (calls | fields | constants) - documented <= {"offset"}


def test_every_header_of_a_posted_record_is_documented_and_the_sample_is_one() -> None:
    record = Record(
        b"customer-17",
        b'{"n": 1}',
        [("trace", b"4bf92f35"), ("content-type", b"application/json")],
        1_789_892_130_250,
    )
    event = event_of(Partition("events", 3), 41, record, 1)
    sample = HTTP.split("POST /records HTTP/1.1\n", 1)[1].split("```", 1)[0]
    head, _, body = sample.partition("\n\n")
    lines = dict(line.split(": ", 1) for line in head.splitlines())
    assert {name: text for name, text in lines.items() if name not in ("host", "content-length")} == dict(
        event.headers
    )
    assert body.strip().encode() == event.body
    assert int(lines["content-length"]) == len(event.body)
    null = event_of(Partition("events", 3), 41, record._replace(value=None), 1)
    names = {re.sub("trace", "…", name) for name, _ in (*event.headers, *null.headers)}
    assert names == set(re.findall(r"^\| `([\w…-]+)` \|", HTTP.split("## Responses")[0], re.MULTILINE))


def test_the_verdict_of_each_status_is_as_documented() -> None:
    rows = dict(re.findall(r"^\| ([\dx, ]+) \| `(\w+)`", HTTP, re.MULTILINE))
    assert len(rows) == 3
    documented: dict[int, str] = {}
    for statuses, verdict in rows.items():
        for status in statuses.split(", "):
            first = int(status.replace("x", "0"))
            for each in range(first, first + 100) if "x" in status else [first]:
                documented[each] = verdict
    for status in range(200, 600):
        verdict = outcome_of(Answer(status)).verdict
        assert verdict is Verdict[documented.get(status, "RETRY")], status


@pytest.mark.process
def test_the_application_of_the_guide_runs(tmp_path: Path) -> None:
    script = tmp_path / "application.py"
    script.write_text(CONSUMER.split("```python\n", 1)[1].split("```", 1)[0])

    async def story(talk: Talk) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            script,
            env=os.environ | {"ROTA_SIDECAR": f"unix://{tmp_path / SOCKET}"},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await play_out(talk, process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def play_out(talk: Talk, process: asyncio.subprocess.Process) -> None:
        deliveries = talk.deliveries
        await deliveries.until(lambda: deliveries.credit == 1_000)
        deliveries.there.on_assignment_event(rebalance_event(1, do.Kind.ASSIGNED, P0))
        await deliveries.until(lambda: deliveries.all(on.Acknowledged))
        deliveries.there.deliver([handed(batch_slice(batch(4, [b"a", b"b", None]), 5))])
        await deliveries.until(lambda: deliveries.credit == 1_002)
        assert deliveries.judgements == [on.Judgement(1, P0, 5, 6, Verdict.ACK)]
        deliveries.there.refuse([do.Refuse(1, P0, 5, "it has a verdict")])
        deliveries.there.on_assignment_event(rebalance_event(2, do.Kind.REVOKING, P0, deadline_ms=9_000))
        await deliveries.until(lambda: len(deliveries.all(on.Acknowledged)) == 2)
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode().strip() for _ in range(5)]
        assert sorted(lines) == [
            "ASSIGNED",
            "REVOKING",
            "orders/0 5: b'b'",
            "orders/0 6: None",
            "refused: it has a verdict",
        ]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert deliveries.detached == [(1, True)]

    play(tmp_path, story)
