"""
Every case of the reference, on every coordinator: the core in virtual time, Rota's server, and a Kafka broker; what a
member asks for, on both servers once more through the sidecar's adapters.

A case that fails on Kafka is wrong itself; one that passes there and fails on Rota is a difference, and a difference is
either mended or stands in docs/divergences.md.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from rota_coordinator.group.hashing import slot_of
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance import (
    cases_admin,
    cases_failover,
    cases_joining,
    cases_leaving,
    cases_offsets,
    cases_rounds,
    cases_topics,
    cases_versions,
    runs,
    sidecar,
)
from tests.conformance.clusters import KafkaCluster, RotaCluster
from tests.conformance.core import CoreDriver
from tests.conformance.driver import (
    CORE,
    DEFAULT,
    DELAYED,
    EXPIRING,
    KAFKA,
    MORTAL,
    ROTA,
    SEVERAL,
    Settings,
)
from tests.conformance.kafka import NOT_YET, KafkaDriver, MortalBroker, transactional_id
from tests.conformance.members import OTHER_TOPIC, TOPIC, Member
from tests.conformance.registry import Case, cases_on
from tests.conformance.server import MortalServer, ServerDriver
from tests.conformance.sidecar import SidecarDriver
from tests.coordinator.fleet import Fleet, until
from tests.support.coordinator import Coordinator, serving
from tests.support.kafka import Kafka, running
from tests.support.postgres.server import Postgres

SECTIONS = (
    cases_admin,
    cases_joining,
    cases_rounds,
    cases_leaving,
    cases_offsets,
    cases_failover,
    cases_topics,
    cases_versions,
)
# As tests.support.kafka sets its brokers up.
OFFSETS_PARTITIONS = 4
TRANSACTIONS_PARTITIONS = 2
# Rota counts in milliseconds.
RETENTION_S = 3
COORDINATES_WITHIN_S = 30
POLL_S = 0.05
Results = Mapping[str, BaseException | None]


def every_case_on(coordinator: str) -> pytest.MarkDecorator:
    """The cases that run there, one test for each."""
    return pytest.mark.parametrize("case", cases_on(coordinator), ids=lambda case: f"{case.id}-{case.rule}")


def every_member_case_on(coordinator: str) -> pytest.MarkDecorator:
    """Those of them that a member can ask for."""
    return pytest.mark.parametrize(
        "case", sidecar.cases(coordinator), ids=lambda case: f"{case.id}-{case.rule}"
    )


@every_case_on(CORE)
def test_core(case: Case) -> None:
    asyncio.run(case.body(CoreDriver(case.settings)))


@pytest.mark.process
@pytest.mark.alone
@every_case_on(ROTA)
def test_rota(case: Case, rota_results: Results) -> None:
    judge(rota_results[case.id])


@pytest.mark.kafka
@pytest.mark.alone
@every_case_on(KAFKA)
def test_kafka(case: Case, kafka_results: Results) -> None:
    judge(kafka_results[case.id])


@pytest.mark.process
@pytest.mark.alone
@every_member_case_on(ROTA)
def test_sidecar_on_rota(case: Case, sidecar_on_rota_results: Results) -> None:
    judge(sidecar_on_rota_results[case.id])


@pytest.mark.kafka
@pytest.mark.alone
@every_member_case_on(KAFKA)
def test_sidecar_on_kafka(case: Case, sidecar_on_kafka_results: Results) -> None:
    judge(sidecar_on_kafka_results[case.id])


def judge(result: BaseException | None) -> None:
    """Fail as the case did."""
    if result is not None:
        raise result


@pytest.fixture(scope="module")
def rota_results(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Results]:
    """What became of every case on Rota's server: one for each set of settings, because they are set at its start."""
    with ExitStack() as stack:
        connect: dict[Settings, Callable[[], runs.RealDriver]] = {}
        for settings in (DEFAULT, DELAYED, EXPIRING, MORTAL):
            present = replace(settings, retention_s=RETENTION_S) if settings == EXPIRING else settings
            coordinator = Coordinator(tmp_path_factory.mktemp("coordinator"), flags(present))
            coordinator.start()
            stack.callback(coordinator.stop)
            for topic in (TOPIC, OTHER_TOPIC):
                coordinator.make_topic(topic)
            connect[settings] = partial(ServerDriver, coordinator.address, present)
            if settings == MORTAL:
                connect[settings] = partial(
                    MortalServer, coordinator.address, settings, coordinator=coordinator
                )
        fleet = stack.enter_context(
            Fleet(tmp_path_factory.mktemp("fleet"), postgres.new_database("conformance"), "abc")
        )
        asyncio.run(until(fleet.is_shared_equally))
        connect[SEVERAL] = partial(RotaCluster, fleet)
        yield runs.run_all(cases_on(ROTA), connect)


def flags(settings: Settings) -> tuple[str, ...]:
    """The server's flags for these settings."""
    return (
        "--group-min-session-timeout-ms=500",
        f"--group-initial-rebalance-delay-ms={settings.initial_rebalance_delay_ms}",
        f"--group-max-size={settings.members_max}",
        f"--offsets-retention-ms={settings.retention_s * 1000}",
        # It also takes groups away that are empty and have no offsets: no other case may meet that.
        f"--offsets-check-interval-ms={500 if settings.retention_s == RETENTION_S else 600_000}",
        "--rebalance-coalesce-ms=0",
    )


@pytest.fixture(scope="module")
def prepared(kafka: Kafka) -> Kafka:
    """The shared broker, which has the default settings, with the cases' topics."""
    prepare(kafka, DEFAULT)
    return kafka


def prepare(broker: Kafka, settings: Settings) -> None:
    """Make the topics, and have the broker coordinate."""
    for topic in (TOPIC, OTHER_TOPIC):
        broker.create_topic(topic, partitions=6)
    asyncio.run(coordinates(KafkaDriver(broker.bootstrap, settings)))


@pytest.fixture(scope="module")
def sidecar_on_kafka_results(prepared: Kafka) -> Results:
    """What became of a member's cases on the shared broker, asked through the adapter."""
    way = sidecar.on_kafka(prepared.bootstrap)
    return runs.run_all(sidecar.cases(KAFKA), {DEFAULT: partial(SidecarDriver, way, DEFAULT, KAFKA)})


@pytest.fixture(scope="module")
def sidecar_on_rota_results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The same on a coordinator of ours."""
    with serving(tmp_path_factory.mktemp("coordinator"), flags(DEFAULT)) as coordinator:
        for topic in (TOPIC, OTHER_TOPIC):
            coordinator.make_topic(topic)
        way = sidecar.on_rota(coordinator.address)
        yield runs.run_all(sidecar.cases(ROTA), {DEFAULT: partial(SidecarDriver, way, DEFAULT, ROTA)})


@pytest.fixture(scope="module")
def kafka_results(prepared: Kafka) -> Iterator[Results]:
    """What became of every case on Kafka."""
    with (
        running(settings=properties(DELAYED)) as delayed,
        running(settings=properties(EXPIRING)) as expiring,
        running(settings=properties(MORTAL)) as mortal,
        running(SEVERAL.processes) as several,
    ):
        connect: dict[Settings, Callable[[], runs.RealDriver]] = {
            DEFAULT: partial(KafkaDriver, prepared.bootstrap, DEFAULT)
        }
        for settings, broker in ((DELAYED, delayed), (EXPIRING, expiring), (MORTAL, mortal)):
            prepare(broker, settings)
            connect[settings] = partial(KafkaDriver, broker.bootstrap, settings)
        connect[MORTAL] = partial(MortalBroker, mortal.bootstrap, MORTAL, kafka=mortal)
        several.create_topic(TOPIC, partitions=6)
        connect[SEVERAL] = partial(KafkaCluster, several, SEVERAL)
        asyncio.run(shared_by(KafkaCluster(several, SEVERAL)))
        yield runs.run_all(cases_on(KAFKA), connect)


def properties(settings: Settings) -> dict[str, str]:
    """The broker's properties for these settings."""
    return {
        "group.initial.rebalance.delay.ms": str(settings.initial_rebalance_delay_ms),
        "group.max.size": str(settings.members_max),
        "offsets.retention.minutes": str(settings.retention_s // 60),
        "offsets.retention.check.interval.ms": "1000" if settings == EXPIRING else "600000",
    }


async def coordinates(driver: KafkaDriver) -> None:
    """Return when the broker coordinates every group and transaction: asked the first time ever, it prepares that."""
    await driver.find_coordinator("group")
    async with asyncio.timeout(COORDINATES_WITHIN_S):
        for group in one_in_each_partition(OFFSETS_PARTITIONS):
            await until_done(Member(driver, group).commit)
        for group in one_in_each_partition(TRANSACTIONS_PARTITIONS, transactional_id):
            await until_done(partial(driver.begin_transaction, group))
    await driver.close()


async def shared_by(cluster: KafkaCluster) -> None:
    """Return when the brokers coordinate every group together."""
    async with asyncio.timeout(COORDINATES_WITHIN_S):
        for group in one_in_each_partition(OFFSETS_PARTITIONS):
            await until_done(Member(cluster, group).commit)
    await cluster.close()


def one_in_each_partition(partitions: int, name_of: Callable[[str], str] = str) -> list[str]:
    """Groups that, by a name that they give, lie in all partitions."""
    groups = [f"warm-{number}" for number in range(100)]
    found = {slot_of(name_of(group), partitions): group for group in groups}
    assert len(found) == partitions
    return list(found.values())


async def until_done(act: Callable[[], Coroutine[None, None, int]]) -> None:
    """Ask until the broker is ready for it."""
    while (error := await act()) != pb.NONE:
        assert error in NOT_YET, f"the broker does not get ready: error {error}"
        await asyncio.sleep(POLL_S)
