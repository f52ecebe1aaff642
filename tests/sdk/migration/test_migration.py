"""Applications for kafka-python and confluent-kafka run on Rota with other imports and constructors, and nothing else changed."""

import ast
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from tests.sdk.migration.changes import MIGRATIONS, Migration, imports_and_constructors
from tests.support.coordinator import serving
from tests.support.processes import Process

WITHIN_S = 90
PARTITIONS = 3
ORDERS = 200
RESULTS = {"kafka_python": "priced-orders", "confluent": "receipts"}

by_client = pytest.mark.parametrize("client", MIGRATIONS)


@by_client
def test_the_application_has_20_to_40_lines(client: str) -> None:
    assert all(20 <= len(path.read_text().splitlines()) <= 40 for path in MIGRATIONS[client])


@by_client
def test_only_imports_and_constructors_differ(client: str) -> None:
    migration = MIGRATIONS[client]
    for path, changed in zip(migration, migration.changed_lines(), strict=True):
        assert changed
        assert changed <= imports_and_constructors(path.read_text())


def test_a_change_of_a_call_is_found(tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text("import a\nc = Consumer(\n    1\n)\nc.poll(1.0)\n")
    after.write_text("import b\nc = Consumer(\n    2\n)\nc.poll(1000)\n")
    changed, _ = Migration(before, after).changed_lines()
    assert changed - imports_and_constructors(before.read_text()) == {5}


@by_client
def test_what_the_original_imports_is_in_kafkas_client(client: str) -> None:
    found = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(MIGRATIONS[client].before.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert len(found) == 3
    for module, name in found:
        assert module is not None
        assert hasattr(importlib.import_module(module), name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """With orders, of which each has a number."""
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        server = f"rota://{coordinator.address}"
        rota.create_topics(server, {"orders": PARTITIONS, **dict.fromkeys(RESULTS.values(), PARTITIONS)})
        sell(server, range(ORDERS))
        yield server


def sell(server: str, numbers: range) -> None:
    with rota.Producer(server) as producer:
        orders = [{"order": number, "item": ("tea", "cup")[number % 2]} for number in numbers]
        values = [json.dumps(order).encode() for order in orders]
        producer.send_many("orders", values, [b"%d" % (number % 20) for number in numbers]).result(30)


def results(server: str, topic: str) -> Counter[int]:
    """Number of times that each order is in the topic."""
    with rota.LogReader(server) as reader:
        return Counter(
            json.loads(value)["order"]
            for partition in range(PARTITIONS)
            for batch in reader.read(topic, partition)
            for value in batch.values
            if value is not None
        )


@pytest.mark.process
@pytest.mark.timeout(400)
@by_client
def test_the_changed_application_runs_on_rota_and_goes_on_behind_what_it_has_committed(
    server: str, client: str, tmp_path: Path
) -> None:
    def run(count: int) -> None:
        command = [sys.executable, str(MIGRATIONS[client].after), server, str(count)]
        process = Process.start(client, command, log=tmp_path / "application.log")
        assert process.wait(within_s=WITHIN_S) == 0, process.tail()

    before = results(server, "orders")
    run(before.total())
    assert results(server, RESULTS[client]) == before
    sell(server, range(before.total(), before.total() + 1))
    run(1)
    assert results(server, RESULTS[client]) == results(server, "orders")
