"""A folder of manifests of groups, for tests of what their fields do, and what runs of it on this laptop."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import yaml

from rota_proto.coordinator.v1 import admin_pb2
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.log.owners import group_offsets
from tests.support.processes import Process
from tests.support.web import post

WITHIN_S = 60
APP = Path(__file__).with_name("probing_app.py")
ROTA = "rota://rota-coordinator.rota:7070"


class Groups:
    """A folder of manifests, and what runs of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests = folder / "manifests"
        self.manifests.mkdir()
        self.process: Process | None = None

    def add(
        self,
        name: str,
        spec: Mapping[str, Any],
        *mode: str,
        containers: list[str] | None = None,
        kind: str = "Deployment",
        program: Path = APP,
    ) -> None:
        """A group, and its workload of one application; `containers` are others, which end at once."""
        target = {"name": name, "kind": kind}
        given = {"bootstrapServers": [ROTA], "replicas": 1, "scaleTargetRef": target, **spec}
        given.setdefault("membership", {"sessionTimeoutSeconds": 6, "heartbeatIntervalSeconds": 1})
        app = {
            "name": "app",
            "image": "app:1",
            "command": ["python", str(program), str(self.notes(name)), *mode],
        }
        others = [{"name": each, "image": "app:1", "command": ["false"]} for each in containers or []]
        labels = {"app": name}
        parse_documents = [
            {
                "apiVersion": "rota.dev/v1alpha1",
                "kind": "ConsumerGroup",
                "metadata": {"name": name},
                "spec": given,
            },
            {
                "apiVersion": "apps/v1",
                "kind": kind,
                "metadata": {"name": name},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [*others, app]}},
                },
            },
        ]
        (self.manifests / f"{name}.yaml").write_text(yaml.safe_dump_all(parse_documents))

    def notes(self, name: str) -> Path:
        """Of one application."""
        return self.folder / f"{name}.notes"

    def lines(self, name: str) -> list[tuple[int, str, str]]:
        """Records that the application received: time, topic and value."""
        if not self.notes(name).exists():
            return []
        lines = (line.split(" ", 2) for line in self.notes(name).read_text().splitlines())
        return [(int(at_ms), topic, value) for at_ms, topic, value in lines]

    def values(self, name: str) -> list[str]:
        """Values that the application received."""
        return [value for _, _, value in self.lines(name)]

    @property
    def address(self) -> str:
        """Of the coordinator."""
        return (self.folder / ".rota" / "address").read_text().strip()

    def log(self, replica: str) -> str:
        """Of its sidecar."""
        file = self.folder / ".rota" / "logs" / f"{replica}.sidecar.log"
        return file.read_text() if file.exists() else ""

    def scale(self, name: str, replicas: int) -> None:
        """As a person does on the page."""
        page = (self.folder / ".rota" / "page").read_text().strip().removeprefix("http://").rstrip("/")
        assert post(page, "/api/scale", {"workload": name, "replicas": replicas}).status == 200

    def pid_file(self, replica: str) -> Path:
        """Of its sidecar, while that runs."""
        return self.folder / ".rota" / "logs" / f"{replica}.sidecar.pid"

    def described(self, group_id: str) -> admin_pb2.DescribedGroup:
        """By the coordinator."""
        with grpc.insecure_channel(self.address.removeprefix("rota://")) as channel:
            request = admin_pb2.DescribeGroupsRequest(group_ids=[group_id])
            (found,) = AdminStub(channel).DescribeGroups(request, timeout=WITHIN_S).groups
        return found

    def committed(self, group_id: str, topic: str) -> int:
        """In its one partition."""
        with grpc.insecure_channel(self.address.removeprefix("rota://")) as channel:
            return group_offsets(channel, group_id, topic, 1)[0]

    @contextmanager
    def running(self, *files: Path, kafka: str = "") -> Iterator[Process]:
        """`rota up` with these; with `kafka` on these brokers."""
        address = self.folder / ".rota" / "address"
        address.unlink(missing_ok=True)
        command = [sys.executable, "-m", "rota_operator", "local", f"--home={self.folder / '.rota'}"]
        flags = ["--listen=127.0.0.1:0", "--page=127.0.0.1:0", *(f"--file={file}" for file in files)]
        if kafka:
            flags.append(f"--kafka={kafka}")
        process = Process.start("local", [*command, *flags], log=self.folder / "local.log")
        try:
            process.wait_until(address.exists, within_s=WITHIN_S)
            yield process
        finally:
            process.stop(within_s=WITHIN_S)

    def until(self, what: str, holds: Any) -> None:  # noqa: ANN401  whatever can be asked
        """Wait for it."""
        assert self.process is not None
        self.process.wait_until(holds, within_s=WITHIN_S)
