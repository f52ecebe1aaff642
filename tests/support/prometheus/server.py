"""
A Prometheus server for one test, for a run of tests, or for a person.

`running` is the one way to have one; the fixtures and the command are thin layers over it.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.support.network import HERE, LOOPBACK, Network, NetworkNamespace
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.prometheus.programs import prepare
from tests.support.workdir import logs, workdir

READY_S = 30
REQUEST_S = 10
SCRAPE_INTERVAL = EVALUATION_INTERVAL = "200ms"
# Prometheus looks for changed targets every five seconds in its discovery; then its scraper does, here at once.
TARGETS_S = 30

# Never through a proxy that the environment names: all of this is on this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class QueryRefused(Exception):
    """Prometheus cannot answer the query; the message is its own."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series in an answer."""

    labels: dict[str, str]
    value: float


class History(NamedTuple):
    """All samples of one series: values by their Unix times in seconds."""

    labels: dict[str, str]
    values: Mapping[float, float]


class Job(NamedTuple):
    """Addresses (`host:port`) to scrape, and the labels that their series get. The series' own labels win, as with the chart's monitors."""

    targets: Sequence[str]
    labels: Mapping[str, str] = {}


NO_JOBS: Mapping[str, Job] = MappingProxyType({})


class Prometheus:
    """A running server."""

    def __init__(self, process: Process, targets: Path, *, namespace: NetworkNamespace, port: int) -> None:
        self.url = f"http://{HERE.address}:{port}"
        self.url_for_pods = f"http://{namespace.address}:{port}"
        self._process = process
        self._targets = targets

    def scrape(self, jobs: Mapping[str, Sequence[str]]) -> None:
        """From now on scrape these addresses (`host:port`, by the name of their job) and no others."""
        _write_targets(self._targets, {name: Job(targets) for name, targets in jobs.items()})

    def query(self, expression: str) -> list[Sample]:
        """The answer to an instant query; empty when no series fits."""
        return [Sample(row["metric"], float(row["value"][1])) for row in self._result(expression)]

    def history(self, selector: str, duration: str) -> list[History]:
        """The samples of all series that fit, in the last `duration`."""
        return [
            History(row["metric"], {float(at_s): float(value) for at_s, value in row["values"]})
            for row in self._result(f"{selector}[{duration}]")
        ]

    def _result(self, expression: str) -> Any:  # noqa: ANN401  JSON
        asked = urllib.parse.urlencode({"query": expression})
        try:
            with _direct.open(f"{self.url}/api/v1/query?{asked}", timeout=REQUEST_S) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as refused:
            with refused:
                raise QueryRefused(f"{expression}: {refused.read().decode()}") from None

    def wait_for(self, expression: str, *, within_s: float = TARGETS_S) -> list[Sample]:
        """The first answer to the query that is not empty."""
        found: list[Sample] = []

        def answered() -> bool:
            found.extend(self.query(expression))
            return bool(found)

        self._process.wait_until(answered, within_s=within_s)
        return found

    def wait_ready(self) -> None:
        """Return when it serves queries."""
        self._process.wait_until(self._is_ready, within_s=READY_S)

    def _is_ready(self) -> bool:
        try:
            _direct.open(f"{self.url}/-/ready", timeout=REQUEST_S).close()
        except urllib.error.HTTPError as refused:  # it says that it is not ready
            refused.close()
            return False
        except OSError:  # nobody listens yet
            return False
        return True


@contextmanager
def running(
    *,
    rules: Sequence[Path] = (),
    network: Network = LOOPBACK,
    jobs: Mapping[str, Job] = NO_JOBS,
    scrape_interval: str = SCRAPE_INTERVAL,
) -> Iterator[Prometheus]:
    """A server with these files of rules, which scrapes these jobs at first; it ends with the block, and with this process."""
    programs = prepare()
    namespace, port = network.namespace(), free_port()
    with workdir("prometheus") as folder, network.forward(namespace.address, port, listen=port):
        targets, config = folder / "targets.json", folder / "prometheus.json"
        _write_targets(targets, jobs)
        config.write_text(json.dumps(_config(targets, rules, scrape_interval)))
        command: list[str | Path] = [
            *namespace.enter,
            programs.program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={namespace.address}:{port}",
            f"--scrape.discovery-reload-interval={SCRAPE_INTERVAL}",
        ]
        log = logs(folder) / "prometheus.log"
        process = Process.start("Prometheus", command, log=log, env=programs.environment())
        try:
            prometheus = Prometheus(process, targets, namespace=namespace, port=port)
            prometheus.wait_ready()
            yield prometheus
        finally:
            process.stop()


def _config(targets: Path, rules: Sequence[Path], scrape_interval: str) -> dict[str, object]:
    # In JSON, which is YAML, too.
    found = {"job_name": "unnamed", "honor_labels": True, "file_sd_configs": [{"files": [str(targets)]}]}
    return {
        "global": {"scrape_interval": scrape_interval, "evaluation_interval": EVALUATION_INTERVAL},
        "rule_files": [str(file.absolute()) for file in rules],
        "scrape_configs": [found],
    }


def _write_targets(file: Path, jobs: Mapping[str, Job]) -> None:
    groups = [
        {"targets": list(job.targets), "labels": {"job": name, **job.labels}} for name, job in jobs.items()
    ]
    # It watches the file: one that is moved into place is never read half written.
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(groups))
    unfinished.rename(file)
