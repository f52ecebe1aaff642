"""The operator reads groups without members at their brokers, commits their first offsets and deletes them, with a login of its own."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from rota_operator.cluster import kafka_watch
from rota_operator.cluster.channels import Channels
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.kafka_access import LIST, read_credentials
from rota_operator.cluster.queues import Key
from rota_operator.cluster.watched import Watched
from rota_operator.engines.port import Unavailable
from rota_operator.overview.assignment import Partition
from rota_operator.spec.validation import parse_spec
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.kafka.oauth_logins import broker, security
from tests.support.certificates import Authority
from tests.support.coordinator import serving
from tests.support.kafka import Kafka, running
from tests.support.kafka.oauth import CLIENT_ID, CLIENT_SECRET, Answer, endpoint
from tests.support.kafka.security import ScramTls
from tests.support.processes import wait_for

pytestmark = pytest.mark.kafka

NAMESPACE = "shop"
KEY = Key(NAMESPACE, "orders")
# For hangs.
WITHIN_S = 60
RECORDS = 7
SESSION_S = 3600
AT_MS = 1_700_000_000_000


def topic_with_records(kafka: Kafka, name: str) -> str:
    """Make a topic with two partitions; records are in the first one."""
    kafka.create_topic(name, partitions=2)
    producer = Producer(kafka.client_config())
    for number in range(RECORDS):
        producer.produce(name, b"v", None, 0, timestamp=AT_MS + number)
    assert producer.flush(WITHIN_S) == 0
    return name


def watched(folder: Path, kafka: Kafka, topic: str, cluster: str = "") -> Watched:
    """A group of the topic's name, at a cluster that the operator's list has with these further fields."""
    text = f"clusters: [{{name: main, bootstrapServers: ['{kafka.bootstrap}'], groups: ['*']{cluster}}}]"
    (folder / LIST).write_text(text)
    given = {"bootstrapServers": [kafka.bootstrap], "topics": [topic], "scaleTargetRef": {"name": "orders"}}
    access = read_credentials(folder).access(parse_spec(given), NAMESPACE, topic)
    return Watched(
        group_id=topic,
        coordinator="",
        has_log=False,
        topics=(topic,),
        topic_pattern="",
        initial_offset="latest",
        read_committed=False,
        access=access,
    )


def play(
    story: Callable[[GroupWatches, Callable[[Callable[[], bool]], Awaitable[None]]], Awaitable[None]],
) -> None:
    """Run a story with the watches and a function that waits until they have seen something."""

    async def bounded() -> None:
        changed = asyncio.Event()

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                changed.clear()
                await changed.wait()

        def on_exception(error: Exception) -> None:
            raise AssertionError from error

        callbacks = GroupCallbacks(
            lambda _: changed.set(), lambda _: changed.set(), lambda _: None, on_exception
        )
        groups = GroupWatches(
            Channels(lambda: None, insecure=True), callbacks, lambda: time.time_ns() // 1_000_000
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                await story(groups, until)
        finally:
            await groups.close()

    asyncio.run(bounded())


def test_a_group_without_members_is_seen_gets_its_first_offsets_and_is_deleted(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    topic = topic_with_records(kafka, unique_name)

    async def story(groups: GroupWatches, until: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
        groups.add(KEY, watched(tmp_path, kafka, topic))
        await until(lambda: (groups.members(KEY), groups.is_new(KEY)) == (0, True))
        assert groups.kafka_problem(KEY) == ""
        await groups.commit_initial_offsets(KEY)
        with pytest.raises(Unavailable, match="committed offsets meanwhile"):
            await groups.commit_initial_offsets(KEY)
        await until(
            lambda: (view := groups.view(KEY)) is not None and view.state == "Empty" and view.lag_records == 0
        )
        view = groups.view(KEY)
        assert view is not None
        assert [(each.partition, each.owner, each.committed) for each in view.partitions] == [
            (0, None, RECORDS),
            (1, None, 0),
        ]
        # Lag has an age: its first record is read.
        producer = Producer(kafka.client_config())
        producer.produce(topic, b"late", None, 1, timestamp=AT_MS)
        assert producer.flush(WITHIN_S) == 0
        await until(lambda: (view := groups.view(KEY)) is not None and view.lag_records == 1)
        view = groups.view(KEY)
        assert view is not None
        assert view.lag_seconds is not None
        assert view.lag_seconds > time.time() - AT_MS / 1000 - WITHIN_S  # noqa: TID251  the record's clock
        await groups.delete_group(KEY)
        await groups.delete_group(KEY)
        await until(lambda: groups.is_new(KEY) is True)

    play(story)


def test_a_group_with_members_keeps_its_offsets_and_sidecars_say_all_as_long_as_they_report(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    topic = topic_with_records(kafka, unique_name)
    config = {
        "group.id": topic,
        "client.id": "pod-0",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**kafka.client_config(), **config})
    consumer.subscribe([topic])
    wait_for("the consumer has both partitions", lambda: bool(consumer.poll(0.1)) or len(consumer.assignment()) == 2, within_s=WITHIN_S)  # fmt: skip

    async def story(groups: GroupWatches, until: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
        groups.add(KEY, watched(tmp_path, kafka, topic))
        # It has joined without a report: brokers name it.
        await until(lambda: groups.members(KEY) == 1 and groups.is_new(KEY) is True)
        view = groups.view(KEY)
        assert view is not None
        assert [each.owner for each in view.partitions] == ["pod-0", "pod-0"]
        for change, error in (
            (groups.commit_initial_offsets, "UNKNOWN_MEMBER_ID"),
            (groups.delete_group, "NON_EMPTY_GROUP"),
        ):
            with pytest.raises(Unavailable, match=error):
                await change(KEY)
        member = pb.MemberReport(member_id="m-1", state=pb.MEMBER_STATE_STABLE, generation_id=4)
        partition = pb.PartitionReport(topic=topic, partition=0)
        report = pb.SidecarReport(group_id=topic, sidecar="pod-1", member=member, partitions=[partition])
        groups.add_report(KEY, report)
        view = groups.view(KEY)
        assert view is not None
        assert [each.name for each in view.members] == ["pod-1"]
        # Of the report, which says nothing else.
        assert {each.partition: each.owner for each in view.partitions}[0] == "pod-1"

    try:
        play(story)
    finally:
        consumer.close()


def test_records_in_kafka_are_read_for_a_group_on_rotas_coordinator(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    topic = topic_with_records(kafka, unique_name)
    with serving(tmp_path / "coordinator") as coordinator:
        # A coordinator with a log of its own takes offsets of its own topics only.
        coordinator.make_topic(topic, 2)

        async def story(groups: GroupWatches, until: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
            groups.add(KEY, watched(tmp_path, kafka, topic)._replace(coordinator=coordinator.address))
            await until(lambda: (groups.members(KEY), groups.is_new(KEY)) == (0, True))
            await groups.commit_initial_offsets(KEY)
            await until(lambda: groups.is_new(KEY) is False)
            view = groups.view(KEY)
            assert view is not None
            assert {Partition(each.topic, each.partition): each.committed for each in view.partitions} == {
                Partition(topic, 0): RECORDS,
                Partition(topic, 1): 0,
            }

        play(story)


def test_more_groups_than_may_have_clients_take_turns(
    tmp_path: Path, kafka: Kafka, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_watch, "OPEN_MAX", 1)
    monkeypatch.setattr(kafka_watch, "POLL_INTERVAL_S", 0.1)
    topic = topic_with_records(kafka, unique_name)
    keys = [Key(NAMESPACE, f"orders-{number}") for number in range(3)]
    most = 0

    def all_are_known(groups: GroupWatches) -> bool:
        nonlocal most
        # Each group has a thread for its committed offsets, and all share that of the topics.
        readers = [each for each in threading.enumerate() if each.name.startswith("kafka-reader")]
        most = max(most, len(readers))
        return all((groups.members(key), groups.is_new(key)) == (0, True) for key in keys)

    async def story(groups: GroupWatches, until: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
        for key in keys:
            group = watched(tmp_path, kafka, topic)
            groups.add(key, group._replace(group_id=f"{topic}-{key.name}"))
        await until(lambda: all_are_known(groups))

    play(story)
    # One of the group, one of the topics; a thread that has ended may still be listed.
    assert 0 < most <= 4


def test_a_login_over_tls_reads_and_a_refused_one_is_said(tmp_path: Path, unique_name: str) -> None:
    with running(security="scram-tls") as kafka:
        topic = topic_with_records(kafka, unique_name)
        assert isinstance(kafka.security, ScramTls)
        password = kafka.security.password
        secret = tmp_path / "main"
        secret.mkdir()
        (secret / "ca.crt").write_text(kafka.security.ca.read_text())
        (secret / "username").write_text(kafka.security.user)
        (secret / "password").write_text("wrong")
        fields = ", tls: true, saslMechanism: SCRAM-SHA-256"

        async def story(groups: GroupWatches, until: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
            groups.add(KEY, watched(tmp_path, kafka, topic, fields))
            await until(lambda: "uthentication failed" in groups.kafka_problem(KEY))
            assert (groups.members(KEY), groups.is_new(KEY)) == (None, None)
            (secret / "password").write_text(password)
            groups.add(KEY, watched(tmp_path, kafka, topic, fields))
            await until(lambda: (groups.members(KEY), groups.is_new(KEY)) == (0, True))
            assert groups.kafka_problem(KEY) == ""

        play(story)


def test_a_login_with_bearer_tokens_reads(tmp_path: Path, unique_name: str) -> None:
    authority = Authority(tmp_path / "idp")
    with (
        broker("oauth-tls", SESSION_S) as kafka,
        endpoint(lambda: Answer.token("admin"), authority.issue("idp")) as idp,
    ):
        topic = topic_with_records(kafka, unique_name)
        secret = tmp_path / "main"
        secret.mkdir()
        ca = security(kafka).ca
        assert ca is not None
        (secret / "ca.crt").write_text(ca.read_text())
        (secret / "token-endpoint-ca.crt").write_text(authority.certificate.read_text())
        (secret / "client-id").write_text(CLIENT_ID)
        (secret / "client-secret").write_text(CLIENT_SECRET)
        fields = f", tls: true, saslMechanism: OAUTHBEARER, scope: kafka, tokenEndpointUrl: '{idp.url}'"

        async def story(groups: GroupWatches, until: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
            groups.add(KEY, watched(tmp_path, kafka, topic, fields))
            await until(lambda: (groups.members(KEY), groups.is_new(KEY)) == (0, True))
            assert groups.kafka_problem(KEY) == ""

        play(story)
        assert idp.requests[0].form["scope"] == ["kafka"]
