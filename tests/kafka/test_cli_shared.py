"""`rota groups` where records are in Kafka and Rota coordinates: each half is asked where it is."""

from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.support.coordinator import QUICK, serving
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_offsets_are_rotas_and_records_are_kafkas(kafka: Kafka, unique_name: str, tmp_path: Path) -> None:
    kafka.create_topic(unique_name, partitions=2)
    with serving(tmp_path, [*QUICK, "--no-log"]) as coordinator:
        rota = Rota(kafka.bootstrap, tmp_path)
        shared = ["--coordinator-address", f"rota://{coordinator.address}"]
        assert rota("produce", unique_name, "--partition", "0", *shared, stdin="a\nb\n").code == 0
        reset = ["groups", "reset", "shop", "--to-earliest", "--topic", unique_name, "--execute"]
        assert rota(*reset, *shared).code == 0
        found = rota("groups", "lag", "shop", "-o", "json", *shared).data
        assert [(each["committed"], each["lag_records"]) for each in found["partitions"]] == [(0, 2), (0, 0)]
        assert rota("groups", "describe", "shop", *shared).code == 0
        assert rota("groups", "describe", "shop").code == 4, "Kafka's own brokers know nothing of it"
