"""Client of `rota up` on this machine: its sidecars' problems, its replicas, the decisions of its autoscaler, and offset resets by running members."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rota_cli.clusters.connection import ADDRESS_FILE, Connection, is_same_address
from rota_cli.clusters.port import Offsets
from rota_cli.errors import Failure

PAGE_FILE = Path(".rota/page")
# `rota up` gives its members a minute to stop and to set offsets, and a minute to resume; one order may take a minute more.
WITHIN_S = 240.0
# Loopback connections bypass any proxy of the environment.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """A running `rota up`; `page` is http://HOST:PORT."""

    page: str

    def problems(self, within_s: float) -> dict[str, list[str]]:
        """Return the problems that the sidecars report, by group. Raises Failure."""
        with self._reading():
            return {
                str(group["group_id"]): [
                    f"{member['name']} reports: {says}"
                    for member in group["members"]
                    for says in member["problems"]
                ]
                for group in self._state(within_s)["groups"]
            }

    def replicas(self, group: str) -> frozenset[str]:
        """Return the names of the group's replicas, which are the client ids of their sidecars. Raises Failure."""
        with self._reading():
            return frozenset(
                str(replica["name"])
                for workload in self._state(WITHIN_S)["workloads"]
                if workload["group_id"] == group
                for replica in workload["replicas"]
            )

    def decisions(self, group: str, within_s: float) -> list[str]:
        """Return the autoscaler's last decisions about the group's workloads, newest first. Raises Failure."""
        with self._reading():
            return [
                _decision_text(str(workload["name"]), decision)
                for workload in self._state(within_s)["workloads"]
                if workload["group_id"] == group
                for decision in workload["decisions"]
            ]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise Failure for a response that is not a runner's: another server may listen on this port by now."""
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.timeout_error(error) from None

    def reset(self, group: str, offsets: Offsets) -> None:
        """Reset the offsets through the group's running members. Raises Failure."""
        by_topic: dict[str, dict[str, int]] = {}
        for (topic, number), offset in offsets.items():
            by_topic.setdefault(topic, {})[str(number)] = offset
        body = json.dumps({"group": group, "offsets": by_topic}).encode()
        request = urllib.request.Request(f"{self.page}/api/reset", body, {"Content-Type": "application/json"})
        try:
            DIRECT.open(request, timeout=WITHIN_S).close()
        except urllib.error.HTTPError as refused:
            with refused:
                raise Failure(_error_of(refused.read())) from None
        except OSError as error:
            raise self.timeout_error(error) from None

    def _state(self, within_s: float) -> dict[str, list[dict[str, Any]]]:
        with DIRECT.open(f"{self.page}/api/state", timeout=within_s) as answer:
            state: dict[str, list[dict[str, Any]]] = json.load(answer)
            return state

    def timeout_error(self, error: Exception) -> Failure:
        return Failure(
            f"`rota up` does not answer at {self.page} ({error}): check that it is running, or stop the group's consumers"
        )


def find_local_runner(connection: Connection) -> LocalRunner | None:
    """Find the `rota up` of this folder; None unless it uses these servers."""
    try:
        address, page = ADDRESS_FILE.read_text(), PAGE_FILE.read_text().strip()
    except OSError:
        return None
    return LocalRunner(page) if is_same_address(address, connection.servers) else None


def _decision_text(workload: str, decision: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(decision["at_ms"] / 1000, UTC)
    before, after = decision["before"], decision["replicas"]
    number = f"{before} replicas" if before == after else f"{before} to {after} replicas"
    dry_run = " (dry run)" if decision["dry_run"] else ""
    return f"{at:%H:%M:%SZ} {workload}{dry_run}: {number}, {decision['reason']}: {decision['explanation']}"


def _error_of(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return "`rota up` rejected the reset without a reason: see its output"
