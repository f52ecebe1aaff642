"""`rota up` scales a group by its load: real processes start, and are drained before they stop, so that no record is repeated."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import rota
from tests.cli.groups import fill
from tests.support.load import Load
from tests.support.processes import Process
from tests.support.web import get, post

pytestmark = pytest.mark.process

WITHIN_S = 90
APP = Path(__file__).with_name("slow_app.py")
PARTITIONS = 4
# Of one record, so that a replica processes at most 20 records per second.
WORK_S = 0.05
AUTOSCALING: Mapping[str, Any] = {
    "enabled": True, "maxReplicaCount": 4, "pollingInterval": 1, "minChangeIntervalSeconds": 6,
    "catchUpSeconds": 30, "targetUtilization": 1.0, "partitionAlignment": "off",
}  # fmt: skip
GROUPS: Mapping[str, Mapping[str, Any]] = {"work": AUTOSCALING, "dry": {**AUTOSCALING, "dryRun": True}}


def manifests(
    name: str,
    autoscaling: Mapping[str, Any],
    notes: Path,
    **fields: Any,  # noqa: ANN401  fields of any type
) -> list[dict[str, Any]]:
    """A group of one replica on a topic of the same name."""
    labels = {"app": name}
    app = {
        "name": "app",
        "image": "app:1",
        "command": ["python", str(APP), str(notes), name, str(WORK_S)],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    group = {
        "bootstrapServers": ["rota://rota-coordinator.rota:7070"],
        "topics": [name],
        "scaleTargetRef": {"name": name},
        "delivery": {"concurrency": 1},
        "autoscaling": dict(autoscaling),
        **fields,
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [app]}}
    workload = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return [
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": {"name": name},
            "spec": group,
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": workload},
    ]


class Scaled:
    """The groups, and what is known of them."""

    def __init__(self, folder: Path, process: Process) -> None:
        self._home = folder / ".rota"
        self._notes = folder / "work.notes"
        self.process = process

    @property
    def address(self) -> str:
        return (self._home / "address").read_text().strip()

    @property
    def page(self) -> str:
        return (self._home / "page").read_text().strip().removeprefix("http://").rstrip("/")

    def found(self, kind: str, key: str, name: str) -> dict[str, Any]:
        state = json.loads(get(self.page, "/api/state").page)
        return next(each for each in state[kind] if each[key] == name)

    def group(self, name: str) -> dict[str, Any]:
        return self.found("groups", "name", f"default/{name}")

    def wanted(self, name: str) -> int:
        return int(self.found("workloads", "name", name)["wanted"])

    def decisions(self, name: str) -> list[dict[str, Any]]:
        return list(self.found("workloads", "name", name)["decisions"])

    def decided(self, name: str, *reasons: str) -> list[dict[str, Any]]:
        return [each for each in self.decisions(name) if each["reason"] in reasons]

    @property
    def done(self) -> Counter[str]:
        """Number of times that each record of the group work was done."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return Counter(line.split(" ", 1)[1] for line in lines)

    def log(self, replica: str) -> str:
        return (self._home / "logs" / f"{replica}.sidecar.log").read_text()

    def until(self, holds: Any) -> None:  # noqa: ANN401  whatever can be asked
        self.process.wait_until(holds, within_s=WITHIN_S)


@contextmanager
def running(
    folder: Path,
    groups: Mapping[str, Mapping[str, Any]] = GROUPS,
    **fields: Any,  # noqa: ANN401  fields of any type
) -> Iterator[Scaled]:
    """Groups under `rota up`, each stable with the replicas that it begins with."""
    for name, autoscaling in groups.items():
        documents = manifests(name, autoscaling, folder / f"{name}.notes", **fields)
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))
    command = [
        sys.executable,
        "-m",
        "rota_operator",
        "local",
        f"--home={folder / '.rota'}",
        f"--file={folder}",
    ]
    flags = ["--listen=127.0.0.1:0", "--page=127.0.0.1:0"]
    process = Process.start("local", [*command, *flags], log=folder / "local.log")
    try:
        process.wait_until((folder / ".rota" / "page").exists, within_s=WITHIN_S)
        scaled = Scaled(folder, process)
        for name in groups:
            fill(scaled.address, name, *[0] * PARTITIONS)
        scaled.until(lambda: all(scaled.group(name)["state"] == "Stable" for name in groups))
        yield scaled
    finally:
        process.stop(within_s=WITHIN_S)


def test_replicas_follow_the_load_and_are_drained_before_they_stop(tmp_path: Path) -> None:
    with running(tmp_path) as scaled:
        with rota.Producer(scaled.address) as producer, Load(partial(send, producer), 2.0) as load:
            fill(scaled.address, "dry", *[500] * PARTITIONS)
            # A tenth of what one replica can do: it also catches up with what was sent before it had started.
            scaled.until(lambda: scaled.decided("work", "WithinTarget", "Stabilizing"))
            assert scaled.wanted("work") == 1
            load.per_second *= 20
            scaled.until(lambda: scaled.wanted("work") >= 2)
            (grown, *_) = scaled.decided("work", "LoadAboveTarget", "LagAboveTarget")
            assert (grown["before"], grown["dry_run"]) == (1, False)
            assert grown["inputs"]["service_rate"] > 0
            dry_run_is_reported(scaled)
            # They process what they are for.
            scaled.until(lambda: {line.split()[0] for line in notes(tmp_path)} >= {"work-0", "work-1"})
        scaled.until(lambda: scaled.wanted("work") == 1)
        assert scaled.decided("work", "LoadBelowTarget")
        assert "Fleet ordered a drain" in scaled.log("work-1")
        scaled.until(lambda: len(scaled.done) == load.sent)
        assert [record for record, times in scaled.done.items() if times > 1] == []
        said = [each["message"] for each in scaled.group("work")["history"] if each["kind"] == "scale"]
        assert any("work scaled from 1 to" in each for each in said)


def send(producer: rota.Producer, number: int) -> None:
    """Send a record of the group work."""
    producer.send("work", b"%d" % number, partition=number % PARTITIONS)


def notes(folder: Path) -> list[str]:
    """Records that the group work has done, with their replica first."""
    return (folder / "work.notes").read_text().splitlines()


def dry_run_is_reported(scaled: Scaled) -> None:
    """The other group has a backlog, is not scaled for it, and a person scales it."""
    scaled.until(lambda: scaled.decided("dry", "LoadAboveTarget"))
    found = scaled.decided("dry", "LoadAboveTarget")[-1]
    assert (found["before"], found["dry_run"]) == (1, True)
    assert found["replicas"] > 1
    assert scaled.wanted("dry") == 1
    assert post(scaled.page, "/api/scale", {"workload": "dry", "replicas": 2}).status == 200
    said = [each["message"] for each in scaled.group("dry")["history"] if each["kind"] == "scale"]
    assert "dry scaled from 1 to 2 replicas" in said
    assert any(each.startswith("autoscaling (dry run) would scale from 1 to ") for each in said)
