"""
Resource versions that the API server has served through the proxy, and writes that rest on older ones. Called by `api_proxy`.

A write rests on an older state if a version of the same object that is newer than the one in its body was served before that one was
read last, or long before the write arrived: its sender had the newer one. A decision may take some seconds, while an overloaded API
server asks for patience; the API server refuses its write then. A status is left out: it names the generation that it was observed
in, and the API server refuses it in an older version. Writes without a version are compared by what they say: none returns to a
former value.
"""

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Between two responses that overtake each other, on a machine that has other things to do.
SETTLED_S = 2.0
# A decision takes less, whatever the API server answers meanwhile.
DECIDED_S = 30.0
EVENTS, STATUS = "events", "status"


@dataclass(slots=True)
class Served:
    """Times at which a version was served first, and last as an answer to a read: a watch repeats what has passed."""

    first_s: float
    read_s: float


class ServedVersions:
    """Objects by kind, namespace and name; filled on the proxy's loop, read when it is at rest."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], dict[int, Served]] = defaultdict(dict)
        self.outdated: list[str] = []
        # Values in the order of their writes, each run of equal ones once.
        self._values: dict[tuple[str, str], list[str]] = defaultdict(list)

    def served(self, kind: str, answer: bytes) -> None:
        """Note what a response to a request, or a line of a watch, shows."""
        found = parsed(answer)
        is_event = found.get("type") in ("ADDED", "MODIFIED", "DELETED")
        if is_event:
            found = found["object"]
        for each in found.get("items", [found]):
            self._note(kind, each.get("metadata") or {}, is_read=not is_event)

    def written(self, namespace: str, resource: str, body: bytes) -> None:
        """Note a write that is carried out."""
        found = parsed(body)
        kind, name, subresource, *_ = [*resource.split("/"), "", ""]
        if kind == EVENTS or subresource == STATUS:
            return
        metadata = dict(found.get("metadata") or {})
        version = str(metadata.pop("resourceVersion", ""))
        known = self._served.get((kind, namespace, name), {})
        if version and (newer := [each for each in known if self._is_outdated(known, int(version), each)]):
            self.outdated.append(f"{namespace}/{resource}: {version}, although {max(newer)} was read")
        if not version:
            value = json.dumps({**found, "metadata": metadata}, sort_keys=True)
            values = self._values[namespace, resource]
            if not values or values[-1] != value:
                values.append(value)

    def returns(self, namespace: str) -> list[str]:
        """Return the resources of a namespace of which a write has said again what another write had replaced."""
        return [
            f"{resource}: {values}"
            for (of, resource), values in self._values.items()
            if of == namespace and len(set(values)) < len(values)
        ]

    def _note(self, kind: str, metadata: Mapping[str, Any], *, is_read: bool) -> None:
        version = str(metadata.get("resourceVersion") or "")
        if not version.isdecimal() or "name" not in metadata:
            return
        known, now_s = self._served[kind, metadata.get("namespace", ""), metadata["name"]], time.monotonic()
        served = known.setdefault(int(version), Served(now_s, now_s))
        if is_read:
            served.read_s = now_s

    def _is_outdated(self, known: Mapping[int, Served], version: int, newer: int) -> bool:
        """Return whether a write on a version rests on an older state than its sender had."""
        read, first_s = known.get(version), known[newer].first_s
        return newer > version and (
            first_s < time.monotonic() - DECIDED_S or (read is not None and first_s < read.read_s - SETTLED_S)
        )


def parsed(body: bytes) -> Mapping[str, Any]:
    """Parse a JSON object; anything else is an empty one."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
