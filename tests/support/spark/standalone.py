"""
A standalone Spark cluster: a master and workers on this machine, and jobs submitted to it.

`running` is the one way to have one; the fixture and the command are thin layers over it.
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.network import HERE
from tests.support.ports import free_port
from tests.support.processes import Process, children_of
from tests.support.spark.installation import Installation, prepare
from tests.support.tree import python_path
from tests.support.workdir import logs, workdir

READY_S = 60
REQUEST_S = 5
WORKER_CORES = "1"
WORKER_MEMORY = "1g"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
EXECUTOR_MEMORY = "900m"

# What every job needs on a machine whose only address is the loopback.
SUBMIT_SETTINGS = {
    "spark.driver.host": HERE.address,
    "spark.driver.bindAddress": HERE.address,
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executor.cores": WORKER_CORES,
    "spark.ui.enabled": "false",
}

# Never through a proxy that the environment names: all of this is on this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Spark:
    """A cluster, and the jobs that were submitted to it."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self.master_url = f"spark://{HERE.address}:{free_port()}"
        self.page = f"http://{HERE.address}:{free_port()}"
        self._installation = installation
        self._folder = folder
        self._logs = logs(folder)
        self._environment = {
            **installation.environment,
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "PYTHONPATH": python_path(),
            "PYSPARK_DRIVER_PYTHON": str(_driver_python(folder)),
        }
        self._processes: list[Process] = []
        self._workers: list[Process] = []

    def submit(
        self,
        application: Path,
        *arguments: str,
        settings: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a job with these settings of Spark, and return while it runs; it ends with the cluster at the latest."""
        number = len(self._processes)
        quick = self._installation.java_options
        every = {
            **SUBMIT_SETTINGS,
            "spark.driver.extraJavaOptions": quick,
            "spark.executor.extraJavaOptions": quick,
            **(settings or {}),
        }
        command: list[str | Path] = [
            self._installation.program("spark-submit"),
            *("--master", self.master_url),
            *("--driver-memory", "512m"),
            *(word for name, value in every.items() for word in ("--conf", f"{name}={value}")),
            application,
            *arguments,
        ]
        return self._begin(f"job-{number}-{application.stem}", command)

    def start(self, workers: int) -> None:
        """Start master and workers; returns when all workers have registered."""
        port, page_port = self.master_url.rpartition(":")[2], self.page.rpartition(":")[2]
        master = self._begin_daemon("master", "Master", "--port", port, "--webui-port", page_port)
        # A worker that comes before the master waits for seconds before it asks again.
        master.wait_until(lambda: self._registered() is not None, within_s=READY_S)
        for number in range(1, workers + 1):
            worker = self._begin_daemon(
                f"worker-{number}", "Worker", "--webui-port", "0", "--cores", WORKER_CORES, "--memory",
                WORKER_MEMORY, "--work-dir", str(self._folder / f"worker-{number}"), self.master_url,
            )  # fmt: skip
            self._workers.append(worker)
        master.wait_until(lambda: self._registered() == workers, within_s=READY_S, beside=self._processes)

    @property
    def executors(self) -> Sequence[int]:
        """Process ids of the executors of all jobs."""
        # A worker has short-lived children too, some of which end while they are looked at.
        return [
            pid
            for worker in self._workers
            for pid in children_of(worker.pid)
            if EXECUTOR in command_line(pid)
        ]

    def end(self) -> None:
        """End everything at once: their folder goes away, so nothing is worth an orderly good-bye."""
        for process in reversed(self._processes):
            process.kill()

    def _begin_daemon(self, name: str, role: str, *arguments: str) -> Process:
        main = f"org.apache.spark.deploy.{role.lower()}.{role}"
        return self._begin(
            name, [self._installation.program("spark-class"), main, "--host", HERE.address, *arguments]
        )

    def _begin(self, name: str, command: Sequence[str | Path]) -> Process:
        process = Process.start(
            f"Spark {name}", command, log=self._logs / f"{name}.log", cwd=self._folder,
            env=self._environment,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def _registered(self) -> int | None:
        """Number of workers that the master reports; None while it does not answer or does not lead."""
        try:
            with _direct.open(f"{self.page}/json/", timeout=REQUEST_S) as answer:
                if answer.headers.get_content_subtype() != "json":
                    return None  # its pages come one after the other, and the first one answers for all
                state = json.load(answer)
        except urllib.error.HTTPError as refused:
            refused.close()
            return None
        except OSError:
            return None
        return int(state["aliveworkers"]) if state["status"] == "ALIVE" else None


def command_line(pid: int) -> str:
    """Arguments of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _driver_python(folder: Path) -> Path:
    # spark-submit starts a job's Python as a child of its own, which would survive it: executors notice that
    # their worker is gone, a driver that sleeps does not.
    script = folder / "driver-python"
    script.write_text(f'#!/bin/sh\nexec setpriv --pdeathsig KILL -- {sys.executable} "$@"\n')
    script.chmod(0o700)
    return script


@contextmanager
def running(workers: int = 2) -> Iterator[Spark]:
    """A new cluster whose workers have one core each; it ends with the block, and with this process."""
    installation = prepare()
    with workdir("spark") as folder:
        spark = Spark(installation, folder)
        try:
            spark.start(workers)
            yield spark
        finally:
            spark.end()
