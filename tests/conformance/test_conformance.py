"""
Every case of the reference, on every coordinator: the core in virtual time, Rota's server, and a Kafka broker; what a
member asks for, on both servers once more through the sidecar's adapters.

A case that fails on Kafka is wrong itself; one that passes there and fails on Rota is a difference, and a difference is
either mended or stands in docs/divergences.md.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from rota_coordinator.core.group.config import GroupConfig
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
from tests.conformance.brokers import prepare, properties, shared_by
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
from tests.conformance.kafka import KafkaDriver, MortalBroker
from tests.conformance.members import OTHER_TOPIC, TOPIC
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
# Rota counts in milliseconds.
RETENTION_S = 3
# Kafka counts in minutes: what waits for that has a place of its own.
AT_ONCE_ON_KAFKA = [case for case in cases_on(KAFKA) if case.settings != EXPIRING]
Results = Mapping[str, BaseException | None]


def each_of(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """One test for each."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: f"{case.id}-{case.rule}")


@each_of(cases_on(CORE))
def test_core(case: Case) -> None:
    asyncio.run(case.body(CoreDriver(case.settings)))


@each_of(cases_on(CORE))
def test_core_with_the_shipped_coalescing(case: Case) -> None:
    asyncio.run(case.body(CoreDriver(shipped(case.settings))))


@pytest.mark.process
@pytest.mark.alone
@each_of(cases_on(ROTA))
def test_rota(case: Case, rota_results: Results) -> None:
    judge(rota_results[case.id])


@pytest.mark.kafka
@pytest.mark.alone
@each_of(AT_ONCE_ON_KAFKA)
def test_kafka(case: Case, kafka_results: Results) -> None:
    judge(kafka_results[case.id])


@pytest.mark.process
@pytest.mark.alone
@each_of(sidecar.cases(ROTA))
def test_sidecar_on_rota(case: Case, sidecar_on_rota_results: Results) -> None:
    judge(sidecar_on_rota_results[case.id])


@pytest.mark.kafka
@pytest.mark.alone
@each_of(sidecar.cases(KAFKA))
def test_sidecar_on_kafka(case: Case, sidecar_on_kafka_results: Results) -> None:
    judge(sidecar_on_kafka_results[case.id])


def judge(result: BaseException | None) -> None:
    """Fail as the case did."""
    if result is not None:
        raise result


@pytest.fixture(scope="module")
def rota_results(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Results]:
    """Outcomes of every case on Rota's server: one for each set of settings, because they are set at its start."""
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


def shipped(settings: Settings) -> Settings:
    """The same with the coalescing that a coordinator has unless its flags say otherwise."""
    return replace(settings, rebalance_coalesce_ms=GroupConfig().rebalance_coalesce_ms)


def flags(settings: Settings) -> tuple[str, ...]:
    """The server's flags for these settings."""
    return (
        "--group-min-session-timeout-ms=500",
        f"--group-initial-rebalance-delay-ms={settings.initial_rebalance_delay_ms}",
        f"--group-max-size={settings.members_max}",
        f"--offsets-retention-ms={settings.retention_s * 1000}",
        # It also takes groups away that are empty and have no offsets: no other case may meet that.
        f"--offsets-check-interval-ms={500 if settings.retention_s == RETENTION_S else 600_000}",
        f"--rebalance-coalesce-ms={settings.rebalance_coalesce_ms}",
    )


@pytest.fixture(scope="module")
def sidecar_on_kafka_results(prepared: Kafka) -> Results:
    """Outcomes of the member's cases on the shared broker, through the adapter."""
    way = sidecar.on_kafka(prepared.bootstrap)
    return runs.run_all(sidecar.cases(KAFKA), {DEFAULT: partial(SidecarDriver, way, DEFAULT, KAFKA)})


@pytest.fixture(scope="module")
def sidecar_on_rota_results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The same on a coordinator of ours."""
    with serving(tmp_path_factory.mktemp("coordinator"), flags(shipped(DEFAULT))) as coordinator:
        for topic in (TOPIC, OTHER_TOPIC):
            coordinator.make_topic(topic)
        way = sidecar.on_rota(coordinator.address)
        yield runs.run_all(sidecar.cases(ROTA), {DEFAULT: partial(SidecarDriver, way, DEFAULT, ROTA)})


@pytest.fixture(scope="module")
def kafka_results(prepared: Kafka) -> Iterator[Results]:
    """Outcomes of every case on Kafka."""
    with (
        running(settings=properties(DELAYED)) as delayed,
        running(settings=properties(MORTAL)) as mortal,
        running(SEVERAL.processes, settings=properties(SEVERAL)) as several,
    ):
        connect: dict[Settings, Callable[[], runs.RealDriver]] = {
            DEFAULT: partial(KafkaDriver, prepared.bootstrap, DEFAULT)
        }
        for settings, broker in ((DELAYED, delayed), (MORTAL, mortal)):
            prepare(broker, settings)
            connect[settings] = partial(KafkaDriver, broker.bootstrap, settings)
        connect[MORTAL] = partial(MortalBroker, mortal.bootstrap, MORTAL, kafka=mortal)
        several.create_topic(TOPIC, partitions=6)
        connect[SEVERAL] = partial(KafkaCluster, several, SEVERAL)
        asyncio.run(shared_by(KafkaCluster(several, SEVERAL)))
        yield runs.run_all(AT_ONCE_ON_KAFKA, connect)
