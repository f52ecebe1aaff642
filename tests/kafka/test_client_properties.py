"""Properties of `--config` reach Kafka's client: the one that fetches, and the one that looks up offsets."""

import asyncio
from pathlib import Path

import pytest

from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.port import Unreachable
from tests.kafka.sidecar_reading import WITHIN_S, Writer, reading
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.kafka import Kafka
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.kafka
# Time of a look-up that cannot succeed.
IN_VAIN_S = 3


@pytest.fixture
def topic(kafka: Kafka, unique_name: str) -> str:
    kafka.create_topic(unique_name)
    return unique_name


def test_a_look_up_uses_them(kafka: Kafka, topic: str) -> None:
    async def look_up(family: str, within_s: float) -> None:
        settings = KafkaSettings((kafka.bootstrap,), properties={"broker.address.family": family})
        async with asyncio.timeout(2 * WITHIN_S), reading(settings) as reader:
            await reader.records.bounds([Partition(topic, 0)], within_s)

    asyncio.run(look_up("v4", WITHIN_S))
    with pytest.raises(Unreachable):
        # The brokers listen on IPv4 alone.
        asyncio.run(look_up("v6", IN_VAIN_S))


def test_the_sidecar_fetches_with_them(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    Writer(kafka, topic).write(b"a", b"b")
    flags = (f"--topics={topic}", "--config=fetch.min.bytes=1", "--config=max.partition.fetch.bytes=1000")
    sidecar = Deliverer(tmp_path, kafka.bootstrap, topic, flags)
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) == 2)


def test_the_sidecar_cannot_fetch_with_wrong_ones(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    Writer(kafka, topic).write(b"a")
    flags = (f"--topics={topic}", "--config=broker.address.family=v6")
    with delivering(sidecar := Deliverer(tmp_path, kafka.bootstrap, topic, flags)):
        sidecar.wait_until(
            lambda: any("Kafka" in line["message"] for line in sidecar.said if line["level"] == "warning")
        )
