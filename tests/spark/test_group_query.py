"""A streaming query on `local[2]` as a member of a group, on a real coordinator with its log, with a sidecar of its own."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import rota
import rota_spark
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from rota_spark import MembershipFailed, Settings
from rota_spark.membership import Membership
from rota_spark.sidecar_calls import SidecarCalls
from tests.spark.results import AVAILABLE_NOW, WITHIN_S, Results
from tests.support.coordinator import Coordinator, serving
from tests.support.documented_metrics import OF_QUERIES
from tests.support.processes import wait_for
from tests.support.records import AT_MS, batch, committed, fill, produce
from tests.support.sidecar import QUICK, Deliverer, delivering

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield coordinator


def settings(coordinator: Coordinator, name: str) -> Settings:
    """Settings of a group that is named like its topic."""
    address = f"rota://{coordinator.address}"
    return Settings(bootstrap_servers=address, group_id=name, topics=[name], sidecar_flags=QUICK)


def of_topic(coordinator: Coordinator, name: str) -> Mapping[int, int]:
    """Committed offsets of the group by partition."""
    return {number: offset for (_, number), offset in committed(coordinator.address, name).items()}


def test_available_now_reads_all_once_and_commits(
    spark_session: SparkSession, coordinator: Coordinator
) -> None:
    coordinator.make_topic("once", 3)
    fill(coordinator.address, "once", 3, 500)
    results = Results()

    with rota_spark.process(
        spark_session,
        results,
        replace(settings(coordinator, "once"), max_records_per_batch=600),
        trigger=AVAILABLE_NOW,
    ) as query:
        assert query.await_termination(WITHIN_S)

    assert results.batches == 3
    for number in range(3):
        assert results.offsets(number) == list(range(500))
    assert of_topic(coordinator, "once") == dict.fromkeys(range(3), 500)
    # The next run begins where the group is, whatever checkpoint there was.
    produce(coordinator.address, "once", 1, batch(["later"]))
    more = Results()
    with rota_spark.process(
        spark_session, more, settings(coordinator, "once"), trigger=AVAILABLE_NOW
    ) as query:
        assert query.await_termination(WITHIN_S)
    assert more.rows == [(1, 500, "later")]


def test_a_batch_read_has_every_column_of_whole_topics(
    spark_session: SparkSession, coordinator: Coordinator
) -> None:
    coordinator.make_topic("columns", 2)
    with rota.Producer(bootstrap_servers=f"rota://{coordinator.address}") as producer:
        producer.send(
            "columns", b"v", key=b"k", partition=1, timestamp_ms=AT_MS, headers=[("h", b"x"), ("none", None)]
        )
        producer.send("columns", None, partition=1, timestamp_ms=AT_MS + 1)
    rota_spark.register(spark_session)
    options = {"bootstrapServers": f"rota://{coordinator.address}", "topics": "columns"}

    rows = spark_session.read.format("rota").options(**options).load().orderBy("offset").collect()

    found = [row.asDict(recursive=True) for row in rows]
    assert [row | {"timestamp": round(row["timestamp"].timestamp() * 1000)} for row in found] == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "columns",
            "partition": 1,
            "offset": 0,
            "timestamp": AT_MS,
            "headers": [{"key": "h", "value": b"x"}, {"key": "none", "value": None}],
        },
        {
            "key": None,
            "value": None,
            "topic": "columns",
            "partition": 1,
            "offset": 1,
            "timestamp": AT_MS + 1,
            "headers": None,
        },
    ]


@contextmanager
def producing(coordinator: Coordinator, topic: str, partitions: int) -> Iterator[list[int]]:
    """Append records to each partition in turn until the block ends; gives the number in each so far."""
    counts = [0] * partitions
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.01):
            for number in range(partitions):
                produce(coordinator.address, topic, number, batch([str(counts[number])]))
                counts[number] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield counts
    finally:
        done.set()
        thread.join()


def test_partitions_move_between_batches_and_each_record_is_processed_once(
    spark_session: SparkSession, coordinator: Coordinator
) -> None:
    coordinator.make_topic("moving", 4)
    results, others = Results(), Results()
    query = rota_spark.process(
        spark_session, results, settings(coordinator, "moving"), trigger={"processingTime": "50 milliseconds"}
    )
    with query, producing(coordinator, "moving", 4) as counts:
        wait_for(
            "all partitions are read",
            lambda: {row[0] for row in results.rows} == {*range(4)},
            within_s=WITHIN_S,
        )
        with rota.Consumer(
            "moving",
            bootstrap_servers=f"rota://{coordinator.address}",
            group_id="moving",
            sidecar_flags=QUICK,
        ) as consumer:

            def other_has_records() -> bool:
                for records in consumer.poll(timeout_ms=100).values():
                    others.rows += [
                        (each.partition, each.offset, (each.value or b"").decode()) for each in records
                    ]
                return len(others.rows) > 20

            wait_for("the other member has records", other_has_records, within_s=WITHIN_S)
        taken = {row[0] for row in others.rows}
        assert 0 < len(taken) < 4
        after = dict(enumerate(counts))
        wait_for(
            "the query reads on where the other member was",
            lambda: all(max(results.offsets(number)) > after[number] for number in range(4)),
            within_s=WITHIN_S,
        )
    for number in range(4):
        seen = results.offsets(number)
        assert seen == sorted(seen)
        together = sorted([*seen, *others.offsets(number)])
        assert together == list(range(len(together)))
        assert of_topic(coordinator, "moving")[number] == len(together)


def test_a_seek_a_leave_and_a_restart_of_the_coordinator_change_the_next_plan_only(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    results = Results()
    with serving(tmp_path) as coordinator:
        port = coordinator.address.rpartition(":")[2]
        coordinator.make_topic("calm", 2)
        fill(coordinator.address, "calm", 2, 10)
        sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", "calm", ["--topics=calm"])
        with delivering(sidecar):
            own = Settings(bootstrap_servers=f"rota://{coordinator.address}", sidecar=sidecar.address)
            with rota_spark.process(
                spark_session, results, own, trigger={"processingTime": "50 milliseconds"}
            ) as query:
                wait_for(
                    "all is committed",
                    lambda: of_topic(coordinator, "calm") == {0: 10, 1: 10},
                    within_s=WITHIN_S,
                )

                with SidecarCalls(sidecar.address) as calls:
                    calls.seek({("calm", 0): 5})
                wait_for("it is read from there", lambda: len(results.rows) == 25, within_s=WITHIN_S)
                assert results.offsets(0) == [*range(10), *range(5, 10)]

                coordinator.kill()
                coordinator.start(f"--listen=127.0.0.1:{port}")
                produce(coordinator.address, "calm", 1, batch(["after the restart"]))
                wait_for("it is read", lambda: results.rows[-1][2] == "after the restart", within_s=WITHIN_S)
                wait_for(
                    "it is committed",
                    lambda: of_topic(coordinator, "calm") == {0: 10, 1: 11},
                    within_s=WITHIN_S,
                )

                with grpc.insecure_channel(sidecar.address) as channel:
                    ConsumerStub(channel).Subscribe(pb.SubscribeRequest(), timeout=WITHIN_S)
                produce(coordinator.address, "calm", 1, batch(["of another member"]))
                wait_for(
                    "the member has left", lambda: coordinator.members_of("calm") == 0, within_s=WITHIN_S
                )
                assert query.streaming.exception() is None
    assert results.rows[-1][2] == "after the restart"


def test_a_seek_while_a_batch_is_in_flight_is_not_undone_by_its_commit(
    spark_session: SparkSession, coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator.make_topic("sought", 1)
    produce(coordinator.address, "sought", 0, batch(["0", "1", "2"]))
    sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", "sought", ["--topics=sought"])
    seen: list[int] = []

    def seek_first(records: DataFrame) -> None:
        if not seen:
            with SidecarCalls(sidecar.address) as calls:
                calls.seek({("sought", 0): 2})
        seen.extend(row[0] for row in records.select("offset").collect())

    with delivering(sidecar):
        own = Settings(bootstrap_servers=f"rota://{coordinator.address}", sidecar=sidecar.address)
        with rota_spark.process(spark_session, seek_first, own):
            wait_for("all is committed", lambda: of_topic(coordinator, "sought") == {0: 3}, within_s=WITHIN_S)
            wait_for(
                "the sidecar's metrics have the rows of both batches",
                lambda: sidecar.metrics().get('rota_query_rows_total{group="sought"}') == len(seen),
                within_s=WITHIN_S,
            )
            assert sidecar.metrics()['rota_query_rows_per_second{group="sought"}'] > 0
            names = {each.partition("{")[0] for each in sidecar.metrics()}
            assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} >= OF_QUERIES
    assert seen == [0, 1, 2, 2]


def test_a_second_query_is_refused_in_this_driver_and_at_the_sidecar(
    spark_session: SparkSession, coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator.make_topic("single", 1)
    sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", "single", ["--topics=single"])
    with delivering(sidecar):
        own = Settings(bootstrap_servers=f"rota://{coordinator.address}", sidecar=sidecar.address)
        with rota_spark.process(spark_session, Results(), own):
            with pytest.raises(
                MembershipFailed, match="a query of this driver is a member of the group already"
            ):
                rota_spark.process(spark_session, Results(), own)
            # Another name of the same socket is as good as another driver.
            other = replace(own, sidecar=sidecar.address.replace("unix:", "unix://"))
            with pytest.raises(
                MembershipFailed, match="another query or application is attached to this sidecar"
            ):
                rota_spark.process(spark_session, Results(), other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"bootstrapServer": "rota://x"},
            'no option "bootstrapserver": use bootstrapServers, topics, sidecar, maxRecordsPerBatch, inputPartitions',
        ),
        ({"topics": "orders"}, "the option bootstrapServers is missing"),
        ({"bootstrapServers": "rota://x"}, "the option topics is missing"),
        (
            {"bootstrapServers": "rota://x", "maxRecordsPerBatch": "0"},
            "maxRecordsPerBatch is '0': use an integer from 1",
        ),
        (
            {"bootstrapServers": "rota://x", "saslPassword": "planted"},
            "is not an option, as options appear in plans",
        ),
    ],
)
def test_wrong_options_are_refused_with_what_to_write(
    spark_session: SparkSession, options: Mapping[str, str], message: str
) -> None:
    rota_spark.register(spark_session)
    with pytest.raises(AnalysisException) as refused:
        spark_session.read.format("rota").options(**options).load().collect()
    assert message in str(refused.value)
    assert "planted" not in str(refused.value)


def test_a_query_that_fails_leaves_the_group_and_its_driver_can_start_another_one(
    spark_session: SparkSession, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.make_topic("failing", 1)
    fill(coordinator.address, "failing", 1, 3)
    own = settings(coordinator, "failing")

    def fail(records: DataFrame) -> None:
        spark_session.table("no_such_table").collect()

    # Nothing stops it, as in a notebook.
    failed = rota_spark.process(spark_session, fail, own)
    with pytest.raises(StreamingQueryException, match="no_such_table"):
        failed.await_termination(WITHIN_S)
    assert coordinator.members_of("failing") == 0
    assert of_topic(coordinator, "failing") == {}
    (line,) = [each.message for each in caplog.records if "the query failed" in each.message]
    assert "nothing of the batch in flight is committed" in line
    assert "no_such_table" in line

    results = Results()
    with rota_spark.process(spark_session, results, own):
        # The first one's end has no effect on the second one.
        failed.stop()
        with pytest.raises(MembershipFailed, match="a query of this driver is a member of the group already"):
            rota_spark.process(spark_session, results, own)
        wait_for("the records are read", lambda: len(results.rows) == 3, within_s=WITHIN_S)
    assert results.offsets(0) == [0, 1, 2]


def test_a_membership_that_fails_before_the_query_runs_fails_its_start(
    spark_session: SparkSession, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.make_topic("early", 1)
    start = Membership.start

    def fail(membership: Membership, within_s: float) -> None:
        start(membership, within_s)
        # As when an event that follows the first assignment cannot be handled.
        membership._fail("the sidecar has ended the attachment")

    monkeypatch.setattr(Membership, "start", fail)
    with pytest.raises(MembershipFailed, match="the sidecar has ended the attachment"):
        rota_spark.process(spark_session, Results(), settings(coordinator, "early"))
    assert coordinator.members_of("early") == 0
    assert not spark_session.streams.active


def test_a_stream_without_the_helper_is_refused(spark_session: SparkSession) -> None:
    rota_spark.register(spark_session)
    stream = spark_session.readStream.format("rota").option("bootstrapServers", "rota://x").load()
    query = stream.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match=r"start the query with rota_spark\.process"):
        query.awaitTermination(WITHIN_S)
