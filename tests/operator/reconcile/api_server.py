"""
The part of the API server that adoption meets, pure: server-side apply with managed fields, and an owner's changes.

Merges as the API server does for the fields that are used here; what it does to real objects is in tests/cluster.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any

from rota_operator.reconcile.ownership import MERGE_KEYS, element_key, managed_fields
from rota_operator.reconcile.target import LAST_APPLIED_ANNOTATION

Json = Any
OWNER = "kubectl-client-side-apply"
ROTA = "rota"
GRACE_PERIOD = "terminationGracePeriodSeconds"


class ApplyConflict(Exception):
    """Another manager owns a field, with another value."""

    def __init__(self, fields: list[str]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


class Stored:
    """One object; each manager's fields are a set of paths of leaves."""

    def __init__(self, body: Json) -> None:
        self._object = copy.deepcopy(body)
        self._object["metadata"]["resourceVersion"] = "1"
        self._default()
        self._owned: dict[str, set[tuple[str, ...]]] = {OWNER: set(_leaves(managed_fields(self._object)))}

    @property
    def live(self) -> Json:
        """As it is read."""
        found = copy.deepcopy(self._object)
        found["metadata"]["managedFields"] = [
            {
                "manager": manager,
                "operation": "Apply" if manager == ROTA else "Update",
                "fieldsV1": _nested(paths),
            }
            for manager, paths in self._owned.items()
            if paths
        ]
        return found

    @property
    def body(self) -> Json:
        """Without what the API server adds."""
        found = copy.deepcopy(self._object)
        del found["metadata"]["resourceVersion"]
        return found

    def apply(self, body: Json, forced: tuple[str, ...] = ()) -> None:
        """As Rota, and with force once more if all conflicts are about these fields. Raises ApplyConflict."""
        wanted = set(_leaves(managed_fields(body)))
        conflicts = [
            path
            for manager, paths in self._owned.items()
            if manager != ROTA
            for path in paths & wanted
            if _at(self._object, path) != _at(body, path)
        ]
        named = [_dotted(path) for path in conflicts]
        if set(named) - set(forced):
            raise ApplyConflict(named)
        others = {path for manager, paths in self._owned.items() if manager != ROTA for path in paths}
        given_up = self._owned.get(ROTA, set()) - wanted - others
        _remove(self._object, _nested(given_up))
        _merge(self._object, body)
        for manager in self._owned:
            if manager != ROTA:
                self._owned[manager] -= set(conflicts)
        self._owned[ROTA] = wanted
        self._default()
        self._changed()

    def release(self) -> None:
        """Apply nothing."""
        self.apply({"metadata": {}})

    def put(self, path: tuple[str, ...], value: Json, manager: str = OWNER) -> None:
        """Another client sets a field, as `kubectl edit` does; the field is its own from then on."""
        self._set(path, value, manager, is_taken=True)

    def force(self, path: tuple[str, ...], value: Json, manager: str) -> None:
        """Server-side apply of a field with force: who has it with the same value keeps it too."""
        found = self._object
        for name in path[:-1]:
            found = found[name]
        self._set(path, value, manager, is_taken=found.get(path[-1]) != value)

    def kubectl_apply_grace_period(self, seconds: int) -> None:
        """As client-side `kubectl apply` of a manifest with another grace period: equal values are not sent."""
        manifest = {"spec": {"template": {"spec": {GRACE_PERIOD: seconds}}}}
        self.put(("metadata", "annotations", LAST_APPLIED_ANNOTATION), json.dumps(manifest))
        if self._object["spec"]["template"]["spec"][GRACE_PERIOD] != seconds:
            self.put(("spec", "template", "spec", GRACE_PERIOD), seconds)

    def _set(self, path: tuple[str, ...], value: Json, manager: str, *, is_taken: bool) -> None:
        found = self._object
        for name in path[:-1]:
            found = found.setdefault(name, {})
        found[path[-1]] = value
        leaf = tuple(f"f:{name}" for name in path)
        if is_taken:
            for paths in self._owned.values():
                paths.discard(leaf)
        self._owned.setdefault(manager, set()).add(leaf)
        self._changed()

    def replace(self, body: Json) -> None:
        """As `kubectl replace` does: nothing of before is left."""
        version = self._object["metadata"]["resourceVersion"]
        self._object, self._owned = Stored(body).state
        self._object["metadata"]["resourceVersion"] = version
        self._changed()

    @property
    def state(self) -> tuple[Json, dict[str, set[tuple[str, ...]]]]:
        """All that is stored."""
        return self._object, self._owned

    def _default(self) -> None:
        self._object["spec"]["template"]["spec"].setdefault("terminationGracePeriodSeconds", 30)

    def _changed(self) -> None:
        metadata = self._object["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not tree:
        return [path] if path else []
    return [leaf for name, below in tree.items() for leaf in _leaves(below, (*path, name))]


def _nested(paths: set[tuple[str, ...]]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        found = tree
        for name in path:
            found = found.setdefault(name, {})
    return tree


def _step(found: Json, name: str) -> Json:
    if name.startswith("f:"):
        return found[name[2:]]
    key = json.loads(name[2:])
    return next(each for each in found if all(each.get(field) == value for field, value in key.items()))


def _at(found: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        found = _step(found, name)
    return found


def _dotted(path: tuple[str, ...]) -> str:
    return "".join(
        f".{name[2:]}" if name.startswith("f:") else f"[{name[2:].strip('{}').replace(':', '=')}]"
        for name in path
    )


def _remove(found: Json, given_up: Json) -> None:
    """Remove the leaves of a tree of fields, and the elements and objects that are empty then."""
    steps = {name: _step(found, name) for name in given_up if _has(found, name)}
    for name, below in steps.items():
        if given_up[name]:
            _remove(below, given_up[name])
        if not given_up[name] or below in ({}, []):
            if isinstance(found, list):
                found.remove(below)
            else:
                del found[name[2:]]


def _has(found: Json, name: str) -> bool:
    try:
        _step(found, name)
    except (KeyError, StopIteration):
        return False
    return True


def _merge(live: Json, body: Json) -> None:
    for name, value in body.items():
        if isinstance(value, dict) and isinstance(live.get(name), dict):
            _merge(live[name], value)
        elif name in MERGE_KEYS and isinstance(live.get(name), list):
            by_key = {element_key(each, MERGE_KEYS[name]): each for each in live[name]}
            for each in value:
                key = element_key(each, MERGE_KEYS[name])
                if key in by_key:
                    _merge(by_key[key], each)
                else:
                    live[name].append(copy.deepcopy(each))
        else:
            live[name] = copy.deepcopy(value)
