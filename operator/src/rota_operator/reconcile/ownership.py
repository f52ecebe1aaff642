"""
Compares a live object with a server-side apply: whether performing it again would change nothing.

It would not if the object has all values of the request, and if the API server's record of the field manager `rota`
(`metadata.managedFields`) has exactly the fields of the request: one that another client has taken over, or one that Rota
applied before and applies no longer, makes a difference.
"""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from rota_operator.reconcile.actions import FIELD_MANAGER
from rota_operator.reconcile.observed import Object

# Keys of the elements of Kubernetes' lists that are merged, by the list's field name. Other lists are replaced whole.
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
# Identify an object; nobody manages them.
IDENTITY_FIELDS = frozenset({"apiVersion", "kind"})
QUANTITY = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10**3),
    "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip
Fields = Mapping[str, Any]


def is_applied(live: Object, body: Object) -> bool:
    """Return whether applying `body` would change nothing of `live`."""
    owned = fields_of(live)
    return bool(owned) and _has_values(live, body) and _are_equal(managed_fields(body), owned)


def fields_of(live: Object, manager: str = FIELD_MANAGER) -> Fields:
    """Return the fields that a manager owns by server-side apply, as the API server writes them (FieldsV1)."""
    for entry in live.get("metadata", {}).get("managedFields", ()):
        if (
            entry.get("manager") == manager
            and entry.get("operation") == "Apply"
            and not entry.get("subresource")
        ):
            found: Fields = entry.get("fieldsV1", {})
            return found
    return {}


def managed_fields(body: Object) -> Fields:
    """Return the fields that an apply of `body` makes its manager own."""
    found = {name: value for name, value in body.items() if name not in IDENTITY_FIELDS}
    metadata = {
        name: value
        for name, value in body.get("metadata", {}).items()
        if name in ("labels", "annotations", "ownerReferences")
    }
    found.pop("metadata", None)
    return _tree({**found, **({"metadata": metadata} if metadata else {})}, "")


def has_field(fields: Fields, *path: str) -> bool:
    """Return whether a manager owns the field at a path, or something below it."""
    found: Any = fields
    for name in path:
        if name not in found:
            return False
        found = found[name]
    return True


def element_key(element: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the key of a list's element, as in FieldsV1."""
    key = {name: element.get(name, "TCP" if name == "protocol" else None) for name in names}
    return f"k:{json.dumps(key, separators=(',', ':'), sort_keys=True)}"


def _tree(value: object, name: str) -> Fields:
    if isinstance(value, Mapping):
        return {f"f:{field}": _tree(below, field) for field, below in value.items()}
    if isinstance(value, Sequence) and name in MERGE_KEYS and not isinstance(value, str):
        return {element_key(each, MERGE_KEYS[name]): _tree(each, "") for each in value}
    return {}


def _are_equal(wanted: Fields, owned: Fields) -> bool:
    """Compare two trees; one that ends where the other goes on is equal, because some objects are owned whole."""
    wanted_names, owned_names = wanted.keys() - {"."}, owned.keys() - {"."}
    if not wanted_names or not owned_names:
        return True
    return wanted_names == owned_names and all(_are_equal(wanted[name], owned[name]) for name in wanted_names)


def _has_values(live: object, wanted: object, name: str = "") -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            field in live and _has_values(live[field], value, name if name == "resources" else field)
            for field, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(live, list | tuple) and _has_elements(live, wanted, name)
    return live == wanted or (name == "resources" and _quantity(live) == _quantity(wanted) is not None)


def _has_elements(live: Sequence[Any], wanted: Sequence[Any], name: str) -> bool:
    if name not in MERGE_KEYS:
        return len(live) == len(wanted) and all(map(_has_values, live, wanted))
    by_key = {element_key(each, MERGE_KEYS[name]): each for each in live}
    return all(_has_values(by_key.get(element_key(each, MERGE_KEYS[name])), each) for each in wanted)


def _quantity(text: object) -> Decimal | None:
    """Parse a quantity, such as 50m or 64Mi: the API server rewrites them."""
    found = QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        return Decimal(found[1]) * SUFFIXES[found[2] or ""]
    except InvalidOperation:
        return None
