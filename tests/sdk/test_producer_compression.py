"""compression_type on Rota's log: batches are stored compressed, and every reader reads what was sent."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest

import rota
from rota import errors
from rota.producer.options import Compression
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.compression import CODECS, NAMES
from rota_proto.log.v1 import log_pb2 as pb
from tests.cli.command import Rota
from tests.log.conversation import Conversation, batch, values_of, write_story
from tests.sdk.faulty_log import TOPIC, Fault, faulty_log
from tests.support.coordinator import Coordinator, serving
from tests.support.workdir import workdir

pytestmark = pytest.mark.process

WITHIN_S = 60
AT_MS = 1_700_000_000_000
COMPRESSIONS: Sequence[Compression] = [each for each in get_args(Compression) if each in NAMES.values()]
# Several batches with the settings of the tests, and one that is compressed in a thread.
VALUES = [b'{"order": %d, "state": "received"}' % number for number in range(3_000)]


@pytest.fixture(scope="module")
def coordinator() -> Iterator[Coordinator]:
    with workdir("compression") as folder, serving(folder) as coordinator:
        yield coordinator


@pytest.fixture
def server(coordinator: Coordinator) -> str:
    return f"rota://{coordinator.address}"


@pytest.fixture
def topic(server: str, unique_name: str) -> str:
    rota.create_topics(server, {unique_name: 1})
    return unique_name


def send(server: str, topic: str, compression: Compression, values: Sequence[bytes] = VALUES) -> None:
    """Send in order, each value with a key, a header, and a timestamp of its own."""
    with rota.Producer(server, compression_type=compression) as producer:
        for number, value in enumerate(values):
            headers = [("n", b"%d" % number)]
            producer.send(topic, value, b"key", 0, AT_MS + number, headers)


def stored(address: str, topic: str, *, accepted: Sequence[int]) -> list[pb.RecordBatch]:
    """All batches, as a reader that accepts these codecs gets them."""
    found: list[pb.RecordBatch] = []

    async def story(talk: Conversation) -> None:
        offset = 0
        while True:
            page = await talk.read(topic, offset, request=pb.FetchRequest(accepted_codecs=accepted))
            assert page.error_code == codes.NONE
            found.extend(page.batches)
            if page.next_offset == offset:
                return
            offset = page.next_offset

    write_story(address, story)
    return found


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_read_as_they_were_sent(server: str, topic: str, compression: Compression) -> None:
    send(server, topic, compression)
    with rota.LogReader(server) as reader:
        records = [record for found in reader.read(topic, 0) for record in found]
        here = rota.TopicPartition(topic, 0)
        assert reader.offsets_at([here], AT_MS + 1_234) == {here: 1_234}
    assert records == [
        rota.Record(topic, 0, number, AT_MS + number, b"key", value, (("n", b"%d" % number),))
        for number, value in enumerate(VALUES)
    ]


@pytest.mark.parametrize("compression", [each for each in COMPRESSIONS if each != "none"])
def test_batches_are_stored_compressed_and_decompressed_for_readers_of_older_versions(
    coordinator: Coordinator, server: str, topic: str, compression: Compression
) -> None:
    send(server, topic, compression)
    kept = stored(coordinator.address, topic, accepted=CODECS)
    old = stored(coordinator.address, topic, accepted=())
    assert {NAMES[each.codec] for each in kept} == {compression}
    assert [value for each in old for value in values_of(each)] == VALUES
    assert 3 * sum(len(each.payload) for each in kept) < sum(len(each.payload) for each in old)


def test_a_batch_that_would_not_be_smaller_is_sent_as_it_is(
    coordinator: Coordinator, server: str, topic: str
) -> None:
    with rota.Producer(server, compression_type="gzip") as producer:
        producer.send(topic, b"x")
    (found,) = stored(coordinator.address, topic, accepted=CODECS)
    assert (found.codec, values_of(found)) == (0, [b"x"])


def test_partitions_of_old_readers_share_a_response_by_decompressed_bytes(
    coordinator: Coordinator, server: str, unique_name: str
) -> None:
    partitions = 6
    rota.create_topics(server, {unique_name: partitions})
    with rota.Producer(server, compression_type="gzip") as producer:
        for partition in range(partitions):
            producer.send(unique_name, bytes((1 << 20) - 100), partition=partition)

    async def story(talk: Conversation) -> None:
        asked = pb.FetchRequest()
        for partition in range(partitions):
            asked.partitions.add(topic=unique_name, index=partition, offset=0)
        answer = await talk.log.Fetch(asked)
        assert [len(part.batches) for part in answer.partitions] == [1, 1, 1, 0, 0, 0]
        asked.accepted_codecs.extend(CODECS)
        answer = await talk.log.Fetch(asked)
        assert [len(part.batches) for part in answer.partitions] == [1] * partitions

    write_story(coordinator.address, story)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_sidecars_and_the_command_line_read_every_codec(
    server: str, topic: str, tmp_path: Path, compression: Compression
) -> None:
    send(server, topic, compression)
    with rota.Consumer(topic, bootstrap_servers=server, group_id=topic) as consumer:
        values: list[bytes | None] = []
        while len(values) < len(VALUES):
            polled = consumer.poll(timeout_ms=WITHIN_S * 1_000)
            assert polled, f"{len(values)} records came"
            values += [record.value for records in polled.values() for record in records]
    assert values == VALUES
    shown = Rota(server, tmp_path)("consume", topic, "--from-beginning", "--value-only")
    assert shown.lines == [value.decode() for value in VALUES]


def test_a_transaction_is_compressed_too(server: str, topic: str) -> None:
    with rota.Producer(server, transactional_id=topic, compression_type="gzip") as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            for value in VALUES:
                producer.send(topic, value)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    with rota.LogReader(server, read_committed=True) as reader:
        assert [value for found in reader.read(topic, 0) for value in found.values] == VALUES


SENDS_WHILE_ENDING = """
import sys, threading, rota

def send():
    with rota.Producer(sys.argv[1], compression_type="gzip") as producer:
        producer.send(sys.argv[2], b"first").result()
        connected.set()
        threading.main_thread().join()
        producer.send_many(sys.argv[2], [b"%d" % number for number in range(20_000)])

connected = threading.Event()
threading.Thread(target=send).start()
connected.wait()
"""


def test_a_thread_that_outlives_the_main_thread_compresses_too(server: str, topic: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SENDS_WHILE_ENDING, server, topic],
        timeout=WITHIN_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    with rota.LogReader(server) as reader:
        assert sum(len(found) for found in reader.read(topic, 0)) == 20_001


def test_an_async_producer_compresses_too(coordinator: Coordinator, server: str, topic: str) -> None:
    async def run() -> None:
        async with rota.AsyncProducer(server, compression_type="gzip") as producer:
            await producer.send_many(topic, VALUES)

    asyncio.run(run())
    found = stored(coordinator.address, topic, accepted=())
    assert [value for each in found for value in values_of(each)] == VALUES
    assert {each.codec for each in stored(coordinator.address, topic, accepted=CODECS)} == {1}


def test_a_codec_of_a_later_version_is_refused_with_the_codecs_that_there_are(
    coordinator: Coordinator, topic: str
) -> None:
    async def story(talk: Conversation) -> None:
        later = batch([b"a"])
        later.codec = 7
        refused = await talk.send(topic, later)
        assert refused.error_code == codes.UNSUPPORTED_COMPRESSION_TYPE
        assert refused.error_message == (
            "unknown codec 7, expected 0 (none) or 1 (gzip) or 4 (zstd); set compression_type of the producer to one of them, or upgrade "
            "the coordinator"
        )

    write_story(coordinator.address, story)


def test_a_server_without_compression_is_named_with_the_remedy() -> None:
    with faulty_log() as (log, address):
        log.fail("Produce", codes.UNSUPPORTED_COMPRESSION_TYPE)
        with rota.Producer(address, compression_type="gzip") as producer:
            refused = producer.send(TOPIC, VALUES[0], partition=0).exception(WITHIN_S)
    assert isinstance(refused, errors.UnsupportedCompressionType)
    assert "upgrade it, or set compression_type to 'none'" in str(refused)


def test_what_is_sent_again_has_the_same_bytes() -> None:
    with faulty_log() as (log, address):
        log.fail("Produce", Fault.LOST_ANSWER, Fault.LOST_REQUEST)
        with rota.Producer(address, compression_type="gzip", retry_backoff_ms=5) as producer:
            producer.send(TOPIC, bytes(1_000), partition=0).result(WITHIN_S)
    batches = [request.partitions[0].batches[0] for request in log.produced()]
    assert len(batches) == 3
    assert {(each.codec, each.payload) for each in batches} == {(1, batches[0].payload)}
    assert log.ends()[0] == 1
