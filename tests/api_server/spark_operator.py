"""
Writes what a Spark operator would: states of SparkApplications, and pods of their drivers, each with a real sidecar.

A stand-in for what this tier cannot have: Spark operators start pods, and there are no nodes. The sidecars are processes of this
machine with the flags of the driver's pod template, so drains and members are real. Called by `test_sparkapplications`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rota_operator.reconcile.spark.kinds import APACHE, KINDS
from tests.api_server.adopting import Shop
from tests.api_server.pod_sidecars import attach_once, start_sidecar
from tests.support.processes import Process

STOP_S = 60
READY = {"type": "Ready", "status": "True"}


class SparkOperator:
    """The Spark operator of one namespace, for one kind."""

    def __init__(self, shop: Shop, api_version: str, fleet: str, folder: Path) -> None:
        self._shop = shop
        self._api_version = api_version
        self._resource = f"sparkapplications.{api_version.partition('/')[0]}"
        self._fleet = fleet
        self._folder = folder
        # By the uid of the application.
        self._sidecars: dict[str, Process] = {}

    def applications(self) -> dict[str, Any]:
        """Return the SparkApplications that are not being deleted, by name."""
        path = f"/apis/{self._api_version}/namespaces/{self._shop.namespace}/sparkapplications"
        found = json.loads(self._shop.cluster.kubectl("get", "--raw", path))["items"]
        return {
            each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]
        }

    def report(self, name: str, state: str, message: str = "") -> None:
        """Write the state of an application."""
        if self._api_version == APACHE:
            status: Any = {"currentState": {"currentStateSummary": state, "message": message}}
        else:
            status = {"applicationState": {"state": state, "errorMessage": message}, "driverInfo": {}}
        self._patch(f"{self._resource}/{name}", {"status": status})

    def run(self, *names: str) -> None:
        """Start the drivers of applications, with their sidecars, and report that they run."""
        running = "RunningHealthy" if self._api_version == APACHE else "RUNNING"
        found = self.applications()
        for name in names:
            pod = self._create_driver(found[name])
            # A socket in it has a path of 107 bytes at most.
            folder = self._folder / pod["metadata"]["uid"][:8]
            folder.mkdir()
            uid = found[name]["metadata"]["uid"]
            self._sidecars[uid] = start_sidecar(self._shop, pod, self._fleet, folder)
            attach_once(folder)
            self.report(name, running)

    def drained(self, uid: str) -> bool:
        """Return whether the driver's sidecar of an application has drained."""
        return "drained" in self._sidecars[uid].log.read_text()

    def end_others(self, uids: Sequence[str]) -> None:
        """End the sidecars of drivers whose application is none of these: a kubelet ends them with the pod."""
        for uid in [each for each in self._sidecars if each not in uids]:
            self._sidecars.pop(uid).stop(within_s=STOP_S)

    def _create_driver(self, application: Any) -> Any:  # noqa: ANN401  objects as they are stored
        part, template = KINDS[self._api_version].driver_template
        given, metadata = application["spec"][part][template], application["metadata"]
        # As Kubeflow's operator names and owns it; Spark adds the image.
        name = f"{metadata['name']}-driver"
        owner = {
            "apiVersion": self._api_version,
            "kind": application["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        containers = [{"image": "shop-spark:1", **each} for each in given["spec"]["containers"]]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**given["metadata"], "name": name, "ownerReferences": [owner]},
            "spec": {**given["spec"], "containers": containers},
        }
        self._shop.kubectl("create", "--filename", "-", input=json.dumps(pod))
        self._patch(f"pod/{name}", {"status": {"phase": "Running", "conditions": [READY]}})
        return self._shop.get(f"pod/{name}")

    def _patch(self, resource: str, changes: Any) -> None:  # noqa: ANN401  a merge patch
        flags = ("--subresource=status", "--type=merge", f"--patch={json.dumps(changes)}")
        self._shop.kubectl("patch", resource, *flags)
