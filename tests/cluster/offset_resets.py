"""Resets of a group's offsets in a cluster, by its resource: requests, records and plans. Called by `test_operator`."""

import json
from typing import Any, NamedTuple

from tests.support.cluster import WITHIN_S, Cluster
from tests.support.processes import wait_for


class OffsetResets(NamedTuple):
    """The resets of one ConsumerGroup."""

    cluster: Cluster
    namespace: str
    group: str

    def request(self, request_id: str, *, dry_run: bool, **to: object) -> None:
        """Apply a reset by its requestId."""
        reset = {"requestId": request_id, "dryRun": dry_run, "to": to}
        # Replaced as a whole: a merge would keep the former target beside the new one.
        values: dict[str, Any] = {} if "offsets" in self._stored()["spec"] else {"/spec/offsets": {}}
        values["/spec/offsets/reset"] = reset
        patch = json.dumps([{"op": "add", "path": path, "value": each} for path, each in values.items()])
        self.cluster.kubectl(
            "patch",
            "consumergroup",
            self.group,
            f"--namespace={self.namespace}",
            "--type=json",
            f"--patch={patch}",
        )

    def record(self) -> Any:  # noqa: ANN401  as it is stored
        """Return the last reset from the status."""
        return self._stored()["status"].get("offsetReset", {})

    def wait_phase(self, request_id: str, phase: str) -> Any:  # noqa: ANN401  as it is stored
        """Wait until a reset has this phase."""

        def has_come() -> bool:
            record = self.record()
            return bool((record.get("requestId"), record.get("phase")) == (request_id, phase))

        wait_for(f"reset {request_id} is {phase}", has_come, within_s=WITHIN_S, poll_s=0.2)
        return self.record()

    def wait_condition(self, condition: str, said: str) -> None:
        """Wait until a condition has a field with this value, such as reason=AlreadyExecuted."""
        field, _, value = said.partition("=")
        path = f'jsonpath={{.status.conditions[?(@.type=="{condition}")].{field}}}={value}'
        self.cluster.wait(f"consumergroup/{self.group}", path, namespace=self.namespace)

    def plan(self, name: str) -> dict[int, tuple[int, int]]:
        """Return old and new offset by partition."""
        table = self.cluster.get(f"configmap/{name}", namespace=self.namespace)["data"]["plan.csv"]
        rows = [line.split(",") for line in table.splitlines()[1:]]
        return {int(row[1]): (int(row[2]), int(row[3])) for row in rows}

    def _stored(self) -> Any:  # noqa: ANN401  as it is stored
        return self.cluster.get(f"consumergroup/{self.group}", namespace=self.namespace)


def restarts(pods: list[Any]) -> dict[str, int]:
    """Restarts of all containers by the pods' uids."""
    return {
        each["metadata"]["uid"]: sum(
            state["restartCount"]
            for state in (*each["status"]["initContainerStatuses"], *each["status"]["containerStatuses"])
        )
        for each in pods
    }
