"""
Each program loads the modules that its mode needs, and not many more.

The interpreter reports each module that it loads (`PYTHONPROFILEIMPORTTIME`), so the counts are those of running programs. A limit is what
a mode loads, with some percent for other versions of Python and of the libraries. Where one is exceeded, `python -X importtime` shows which
module loads which: import it where it is used, or raise the limit for what is needed.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.coordinator import QUICK, Coordinator
from tests.support.sidecar import Deliverer

LOADED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
# Nothing listens there; what a sidecar needs is loaded before it connects.
CLOSED = "127.0.0.1:1"
WITHIN_S = 60

BARE_MAX = 40
SDK_MAX = 60
PRODUCER_MAX = 235
CONSUMER_MAX = 340
SIDECAR_ON_ROTA_MAX = 480
SIDECAR_ON_KAFKA_MAX = 580
COORDINATOR_ON_SQLITE_MAX = 480
COORDINATOR_ON_POSTGRESQL_MAX = 570
OPERATOR_MAX = 930

# Clients of other servers than those of a mode.
OF_KAFKA = {"confluent_kafka", "kafka"}
OF_KUBERNETES = {"aiohttp", "kopf", "kubernetes"}
OF_POSTGRESQL = {"psycopg"}

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each program report what it loads."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")


def loaded_in(report: str) -> list[str]:
    return LOADED.findall(report)


def packages(loaded: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded}


def run(*arguments: str) -> list[str]:
    """Run a program to its end; return the modules that it loaded."""
    finished = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=WITHIN_S)
    return loaded_in(finished.stderr)


def sidecar(folder: Path, servers: str) -> list[str]:
    """Run a sidecar until its listeners are open."""
    deliverer = Deliverer(folder, servers, "group")
    deliverer.start()
    try:
        return loaded_in(deliverer.process.log.read_text())
    finally:
        deliverer.close()


def coordinator(folder: Path, store: str = "") -> list[str]:
    """Run a coordinator until it serves."""
    serving = Coordinator(folder, QUICK, store=store)
    serving.start()
    try:
        return loaded_in(serving.log.read_text())
    finally:
        serving.stop()


def test_the_interpreter_reports_what_it_loads() -> None:
    loaded = run("-c", "import json.decoder")
    assert {"json", "json.decoder"} <= set(loaded)
    assert len(run("-c", "")) <= BARE_MAX


@pytest.mark.parametrize(
    ("program", "most"),
    [("", SDK_MAX), ("rota.Producer", PRODUCER_MAX), ("rota.Consumer", CONSUMER_MAX)],
    ids=["nothing", "producer", "consumer"],
)
def test_the_sdk_loads_what_is_used_of_it(program: str, most: int) -> None:
    loaded = run("-c", f"import rota\n{program}")
    assert "rota" in loaded
    assert packages(loaded).isdisjoint(OF_KAFKA | OF_KUBERNETES | OF_POSTGRESQL)
    assert len(loaded) <= most


def test_a_sidecar_on_rota_loads_no_client_of_kafka(tmp_path: Path) -> None:
    loaded = sidecar(tmp_path, f"rota://{CLOSED}")
    assert "rota_sidecar.engines.rota.reading" in loaded
    assert packages(loaded).isdisjoint(OF_KAFKA | OF_KUBERNETES | OF_POSTGRESQL | {"prometheus_client"})
    assert len(loaded) <= SIDECAR_ON_ROTA_MAX


def test_a_sidecar_on_kafka_loads_the_protocol_of_kafka_python_and_none_of_its_clients(
    tmp_path: Path,
) -> None:
    loaded = sidecar(tmp_path, CLOSED)
    assert {"confluent_kafka", "kafka.protocol.consumer.group"} <= set(loaded)
    assert {"kafka", "kafka.admin", "kafka.consumer", "kafka.producer"}.isdisjoint(loaded)
    assert packages(loaded).isdisjoint(OF_KUBERNETES | OF_POSTGRESQL | {"prometheus_client"})
    assert len(loaded) <= SIDECAR_ON_KAFKA_MAX


def test_a_coordinator_loads_the_driver_of_its_store_only(tmp_path: Path, database: str) -> None:
    on_sqlite = coordinator(tmp_path / "sqlite")
    assert packages(on_sqlite).isdisjoint(OF_KAFKA | OF_KUBERNETES | OF_POSTGRESQL)
    assert len(on_sqlite) <= COORDINATOR_ON_SQLITE_MAX

    on_postgresql = coordinator(tmp_path / "postgresql", database)
    assert "psycopg" in on_postgresql
    assert "rota_coordinator.store.sqlite" not in on_postgresql
    assert packages(on_postgresql).isdisjoint(OF_KAFKA | OF_KUBERNETES)
    assert len(on_postgresql) <= COORDINATOR_ON_POSTGRESQL_MAX


def test_the_operator_loads_one_client_of_kubernetes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    loaded = run(
        "-m", "rota_operator", "cluster", "--sidecar-image=rota-sidecar", "--lease-name=", "--insecure"
    )
    assert {"kopf", "kubernetes.aio", "rota_operator.cluster.process"} <= set(loaded)
    assert {"requests", "kubernetes.stream", "kubernetes.client.api_client"}.isdisjoint(loaded)
    assert packages(loaded).isdisjoint(OF_KAFKA | OF_POSTGRESQL)
    assert len(loaded) <= OPERATOR_MAX
