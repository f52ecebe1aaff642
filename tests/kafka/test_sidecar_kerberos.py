"""A group on brokers with Kerberos, with and without TLS: membership and commits, beside a Java client, under access control."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.kafka.kerberos_realm import ALLOWED, PARTITIONS, TOPIC, kerberized, process, security, settings
from tests.kafka.sidecar_group import WITHIN_S, member, run
from tests.support.kafka import Kafka
from tests.support.kafka.consumers import console, wait_for_shares
from tests.support.kafka.security import SecurityName
from tests.support.sidecar import running as running_sidecar
from tests.support.sidecar import settle

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module", params=["kerberos", "kerberos-tls"])
def either(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Brokers without TLS, then with it."""
    name: SecurityName = request.param
    with kerberized(name) as kafka:
        yield kafka


def test_a_principal_joins_beats_and_commits(either: Kafka) -> None:
    async def join() -> None:
        async with member(settings(either), f"{ALLOWED}group", TOPIC) as one:
            await one.serve()
            assert (await one.join()).error_code == pb.NONE
            assert (await one.sync(**{one.member_id: b""})).error_code == pb.NONE
            assert await one.heartbeat() == pb.NONE
            assert await one.commit(7, one.generation, 0, 1) == pb.NONE

    run(join())


def test_a_group_that_the_principal_may_not_read_is_an_answer_and_no_failed_login(either: Kafka) -> None:
    async def find() -> None:
        async with member(settings(either), "forbidden") as one:
            assert await one.coordination.find(WITHIN_S) == pb.GROUP_AUTHORIZATION_FAILED

    run(find())


def test_a_group_is_shared_with_a_java_client_of_the_same_mechanism(either: Kafka, tmp_path: Path) -> None:
    ours = process(either, tmp_path, "rota")
    group, login = f"{ALLOWED}rota", security(either).java_properties()
    other = console(either, TOPIC, group, "cooperative-sticky", tmp_path / "console.log", login)
    with running_sidecar(ours):
        ours.wait_until_it_has(PARTITIONS)
        with other:
            half = PARTITIONS // 2
            shares = wait_for_shares(either, group, {"sidecar": half, "console-consumer": half})
            assert ours.wait_until_it_has(half) == shares["sidecar"]
            settle(ours)
            assert ours.commit(dict.fromkeys(shares["sidecar"], 3)) == {}
        ours.wait_until_it_has(PARTITIONS)
        assert ours.terminate() == 0
