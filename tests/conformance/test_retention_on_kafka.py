"""
Cases that wait for Kafka to expire offsets, which takes at least a minute.

They run beside other tests, so that the other cases need not wait for them.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests.conformance import cases_admin
from tests.conformance.brokers import prepare, properties
from tests.conformance.driver import EXPIRING, KAFKA
from tests.conformance.kafka import KafkaDriver
from tests.conformance.registry import Case, cases_on
from tests.support.kafka import Kafka, running

SECTIONS = (cases_admin,)
CASES = [case for case in cases_on(KAFKA) if case.settings == EXPIRING]

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    """One that forgets soon."""
    with running(settings=properties(EXPIRING)) as broker:
        prepare(broker, EXPIRING)
        yield broker


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id}-{case.rule}")
def test_retention_on_kafka(case: Case, broker: Kafka) -> None:
    async def ask() -> None:
        driver = KafkaDriver(broker.bootstrap, EXPIRING)
        try:
            await case.body(driver)
        finally:
            await driver.close()

    asyncio.run(ask())
