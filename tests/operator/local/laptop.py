"""A folder of manifests that runs on this machine, for tests: a group of three that notes what it does."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rota
from tests.support.processes import Process
from tests.support.web import get, post

APP = Path(__file__).parent / "consuming_app.py"
CARELESS_APP = Path(__file__).parent / "careless_app.py"
WITHIN_S = 60
RECORDS = 60
MANIFESTS = """\
apiVersion: rota.dev/v1alpha1
kind: ConsumerGroup
metadata: {{name: orders, namespace: shop}}
spec:
  bootstrapServers: ["rota://rota-coordinator.rota:7070"]
  topics: [orders]
  replicas: 3
  scaleTargetRef: {{name: orders}}
  membership: {{sessionTimeoutSeconds: 6, heartbeatIntervalSeconds: 1}}
  offsets: {{commit: {{mode: sync}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: orders, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: orders}}}}
  template:
    metadata: {{labels: {{app: orders}}}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
        - name: app
          image: orders:1
          command: [python, {app}, {notes}]
          env:
            - name: POD
              valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}
"""
LocalPaths = tuple[int, int]


class Laptop:
    """A folder with manifests, and what runs there."""

    def __init__(self, folder: Path, app: Path = APP) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.touch()
        (folder / "orders.yaml").write_text(MANIFESTS.format(app=app, notes=self.notes))
        self._starts = 0

    def start(self, *within: str) -> Process:
        """Start the runner, by the program in `within` if there is one."""
        self._starts += 1
        command = [
            *within,
            sys.executable,
            "-m",
            "rota_operator",
            "local",
            "-f",
            str(self.folder),
            f"--home={self.home}",
            "--listen=127.0.0.1:0",
            "--page=127.0.0.1:0",
        ]
        return Process.start("local", command, log=self.folder / f"local-{self._starts}.log")

    @property
    def home(self) -> Path:
        return self.folder / ".rota"

    @property
    def address(self) -> str:
        return (self.home / "address").read_text().strip()

    @property
    def page(self) -> str:
        return (self.home / "page").read_text().strip().removeprefix("http://")

    def group(self) -> dict[str, Any]:
        """State of the only group, once it is shown."""
        if not (self.home / "page").exists():
            return {"state": "Unknown", "members": [], "partitions": [], "history": [], "lag_records": None}
        state = json.loads(get(self.page, "/api/state").page)
        found: dict[str, Any] = state["groups"][0]
        return found

    def owners(self) -> dict[str, int]:
        """Number of partitions of each member that reports them itself."""
        stable = [each for each in self.group()["members"] if each["state"] == "Stable"]
        return {each["name"]: len(each["partitions"]) for each in stable}

    def kill(self, replica: str) -> None:
        """Its sidecar, and its application, as a crash of its node would."""
        for part in ("sidecar", "app"):
            os.kill(int((self.home / "logs" / f"{replica}.{part}.pid").read_text()), signal.SIGKILL)

    def scale(self, replicas: int) -> None:
        body = {"workload": "orders", "replicas": replicas}
        assert post(self.page, "/api/scale", body).status == 200

    def fill(self, process: Process, values: int) -> None:
        """Records for the members, ten for each partition of six."""
        process.wait_until((self.home / "address").exists, within_s=WITHIN_S)
        rota.create_topics(self.address, {"orders": 6})
        self.send(values)

    def send_when_ready(self, process: Process, values: int) -> None:
        """Send records once the coordinator answers."""
        process.wait_until((self.home / "address").exists, within_s=WITHIN_S)
        self.send(values)

    def send(self, values: int) -> None:
        with rota.Producer(self.address) as producer:
            for number in range(values):
                producer.send("orders", b"%d" % number, partition=number % 6)
            producer.flush()

    @property
    def done(self) -> list[tuple[str, LocalPaths]]:
        """By whom, and what."""
        lines = (line.split() for line in self.notes.read_text().splitlines())
        return [(who, (int(partition), int(offset))) for who, partition, offset in lines]

    def processes(self) -> Mapping[int, str]:
        """All that run, and belong here."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (NotADirectoryError, FileNotFoundError, ProcessLookupError):
                continue
            if entry.name.isdecimal() and (str(self.home) in command or str(self.notes) in command):
                found[int(entry.name)] = command
        return found

    def all_are_done(self, count: int) -> bool:
        return len({record for _, record in self.done}) == count
