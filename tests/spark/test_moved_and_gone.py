"""Partitions that move, and topics that are deleted, while a batch of a driver runs; without Spark, on real servers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from pyspark.sql.streaming.datasource import ReadMaxRows

import rota
from rota_spark.core.options import SourceOptions
from rota_spark.core.plan import Plan, Range, plan_of
from rota_spark.kafka_records import described
from rota_spark.log_records import ReadFailed
from rota_spark.membership import Membership, MembershipFailed, OnAssigned
from rota_spark.readers import GroupReader, records_at
from rota_spark.sidecar_calls import SidecarAway, SidecarCalls
from tests.support.coordinator import Coordinator, serving
from tests.support.processes import wait_for
from tests.support.records import committed, fill
from tests.support.sidecar import Deliverer, delivering, running
from tests.support.sidecar import Sidecar as JsonMember

WITHIN_S = 60
RECORDS = 10


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield coordinator


def servers(coordinator: Coordinator) -> str:
    return f"rota://{coordinator.address}"


@contextmanager
def driver_of(
    sidecar: Deliverer, on_assigned: OnAssigned = lambda *_: None
) -> Iterator[tuple[Membership, SidecarCalls]]:
    """The member of a driver without a query."""
    failures: list[MembershipFailed] = []
    with SidecarCalls(sidecar.address) as calls:
        membership = Membership(calls, "driver", failures.append, on_assigned)
        try:
            membership.start(WITHIN_S)
            yield membership, calls
        finally:
            membership.close()
    assert failures == []


@pytest.mark.process
def test_a_partition_that_moves_while_its_batch_runs_is_not_committed_by_its_former_owner(
    tmp_path: Path, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    topic = "moves"
    coordinator.make_topic(topic, 2)
    fill(coordinator.address, topic, 2, RECORDS)
    flags = [f"--topics={topic}", "--rebalance-timeout-ms=3000"]
    sidecar = Deliverer(tmp_path, servers(coordinator), topic, flags)
    other = JsonMember(tmp_path, servers(coordinator), topic, flags, name="other")
    with delivering(sidecar), driver_of(sidecar) as (membership, calls):
        wait_for(
            "both are known", lambda: len(calls.positions([(topic, 0), (topic, 1)])) == 2, within_s=WITHIN_S
        )
        batch = membership.begin(Plan(1, (Range(topic, 0, 0, RECORDS), Range(topic, 1, 0, RECORDS))))
        assert batch.records == 2 * RECORDS
        with running(other):
            # The batch does not end within the rebalance timeout.
            ((_, moved),) = other.wait_until_it_has(1, within_s=WITHIN_S)
            kept = 1 - moved
            assert membership.commit(batch) == {(topic, kept): RECORDS}
            membership.end()
            assert committed(coordinator.address, topic) == {(topic, kept): RECORDS}
            # Nor does a later batch of the same plan have its records.
            assert membership.begin(Plan(2, (Range(topic, moved, 0, RECORDS),))).ranges == ()
            membership.end()
    assert "partitions of it go to others" in caplog.text


@pytest.mark.process
def test_a_topic_that_is_deleted_under_a_query_gives_no_batch_and_no_commit_and_is_named(
    tmp_path: Path, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    gone, there = "gone", "there"
    for topic in (gone, there):
        coordinator.make_topic(topic, 1)
        fill(coordinator.address, topic, 1, RECORDS)
    # The group does not look at its topics again before the end.
    flags = [f"--topics={gone},{there}", "--topics-refresh-ms=600000"]
    sidecar = Deliverer(tmp_path, servers(coordinator), gone, flags)
    options = SourceOptions(servers(coordinator), sidecar=sidecar.address)
    with delivering(sidecar), driver_of(sidecar) as (membership, calls):
        reader = GroupReader(options)
        wait_for(
            "both are known", lambda: len(calls.positions([(gone, 0), (there, 0)])) == 2, within_s=WITHIN_S
        )
        plan = plan_of(reader.latestOffset(reader.initialOffset(), ReadMaxRows(100)))
        assert {each.topic for each in plan.ranges} == {gone, there}
        batch = membership.begin(plan)
        with rota.Topics(servers(coordinator)) as topics:
            topics.delete([gone])

        # A task of the batch in flight fails, and says what to do.
        with (
            records_at(servers(coordinator), read_committed=True) as records,
            pytest.raises(
                ReadFailed, match=r"gone-0 does not exist any more.*remove gone from the group's topics"
            ),
        ):
            list(records.read(Range(gone, 0, 0, RECORDS)))
        # A batch that was read before is committed as far as its topics are there.
        assert membership.commit(batch) == {(there, 0): RECORDS}
        membership.end()
        offset = reader.latestOffset(plan.offset(), ReadMaxRows(100))
        assert offset == plan.offset()
        reader.stop()
    assert "no new records of gone: the topic does not exist any more" in caplog.text


@pytest.mark.process
def test_positions_are_set_again_after_the_sidecar_could_not_be_asked(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    topic, answers = "asked-again", [SidecarAway("its engine is away"), None]
    coordinator.make_topic(topic, 1)

    def on_assigned(*_: object) -> None:
        if answer := answers.pop(0):
            raise answer

    sidecar = Deliverer(tmp_path, servers(coordinator), topic, [f"--topics={topic}"])
    with delivering(sidecar), driver_of(sidecar, on_assigned) as (membership, _):
        assert membership.tenures.keys() == {(topic, 0)}
    assert answers == []


@pytest.mark.process
def test_a_sidecar_that_is_killed_while_positions_are_set_ends_the_membership(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    topic = "killed"
    coordinator.make_topic(topic, 1)
    sidecar = Deliverer(tmp_path, servers(coordinator), topic, [f"--topics={topic}"])

    def on_assigned(*_: object) -> None:
        sidecar.kill()
        raise SidecarAway

    with delivering(sidecar), SidecarCalls(sidecar.address) as calls:
        failures: list[MembershipFailed] = []
        membership = Membership(calls, "driver", failures.append, on_assigned)
        with pytest.raises(MembershipFailed, match="the sidecar has ended the attachment"):
            membership.start(WITHIN_S)
        membership.close()
    assert len(failures) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "t-3 does not exist any more"),
        (KafkaError._UNKNOWN_PARTITION, "t-3 does not exist any more"),
        (KafkaError.OFFSET_OUT_OF_RANGE, "its records were deleted before the group read them"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "set ROTA_SASL_MECHANISM, ROTA_SASL_USERNAME"),
        (KafkaError._TIMED_OUT, "see the brokers' log"),
    ],
)
def test_what_kafka_refuses_to_read_is_named_with_the_remedy(code: int, message: str) -> None:
    assert message in described(KafkaError(code), Range("t", 3, 5, 9))
