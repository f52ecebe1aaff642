"""
Resource versions that the API server has served through the proxy, and writes that rest on older ones. Called by `api_proxy`.

A write rests on an older state if the version in its body is below one of the same object that was served SETTLED_S before it arrived:
its sender had read the newer one. A status is left out: it names the generation that it was observed in, and the API server refuses
it in an older version. Writes without a version are compared by what they say: none returns to a former value.
"""

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

# Between a response and the decision that follows it, on a machine that has other things to do.
SETTLED_S = 5.0
EVENTS, STATUS = "events", "status"


class ServedVersions:
    """Objects by kind, namespace and name; filled on the proxy's loop, read when it is at rest."""

    def __init__(self) -> None:
        # Rising versions with the time at which each was served.
        self._served: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
        self.outdated: list[str] = []
        # Values in the order of their writes, each run of equal ones once.
        self._values: dict[tuple[str, str], list[str]] = defaultdict(list)

    def served(self, kind: str, answer: bytes) -> None:
        """Note what a response to a request, or a line of a watch, shows."""
        found = parsed(answer)
        if found.get("type") in ("ADDED", "MODIFIED", "DELETED"):
            found = found["object"]
        for each in found.get("items", [found]):
            self._note(kind, each.get("metadata") or {})

    def written(self, namespace: str, resource: str, body: bytes) -> None:
        """Note a write that is carried out."""
        found = parsed(body)
        kind, name, subresource, *_ = [*resource.split("/"), "", ""]
        if kind == EVENTS or subresource == STATUS:
            return
        metadata = dict(found.get("metadata") or {})
        version = str(metadata.pop("resourceVersion", ""))
        known = [
            number
            for number, at_s in self._served.get((kind, namespace, name), ())
            if at_s < time.monotonic() - SETTLED_S
        ]
        if version and known and int(version) < max(known):
            self.outdated.append(f"{namespace}/{resource}: {version}, although {max(known)} was read")
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

    def _note(self, kind: str, metadata: Mapping[str, Any]) -> None:
        version = str(metadata.get("resourceVersion") or "")
        if not version.isdecimal() or "name" not in metadata:
            return
        served = self._served[kind, metadata.get("namespace", ""), metadata["name"]]
        if not served or int(version) > served[-1][0]:
            served.append((int(version), time.monotonic()))


def parsed(body: bytes) -> Mapping[str, Any]:
    """Parse a JSON object; anything else is an empty one."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
