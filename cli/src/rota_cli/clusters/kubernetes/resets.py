"""
Requests an offset reset by `spec.offsets.reset`, and reads its plan from the ConfigMaps that the operator writes.

Called by `kubectl rota groups reset`.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rota_cli.clusters.kubernetes.api import Api, Object
from rota_cli.clusters.kubernetes.errors import Changed
from rota_cli.clusters.kubernetes.groups import read_group
from rota_cli.clusters.kubernetes.kinds import CONFIG_MAP, CONSUMER_GROUP
from rota_cli.clusters.kubernetes.resource import ConsumerGroup, parse_group
from rota_cli.errors import Failure

# The status of a group is written about once a second, and each write makes the version that was read an old one.
ATTEMPTS_MAX = 8
FIRST_PART = re.compile(r"1/([1-9][0-9]{0,2})")


class PlannedOffset(NamedTuple):
    """Reset of one partition; None: no committed offset. Times are RFC 3339, empty: unknown."""

    topic: str
    partition: int
    old: int | None
    new: int
    old_time: str
    new_time: str
    remark: str


def request_reset(api: Api, group: ConsumerGroup, reset: Mapping[str, Any], manager: str) -> ConsumerGroup:
    """
    Replace `spec.offsets.reset` of the ConsumerGroup that was read; returns the new version.

    Raises Failure if it, or its reset, is another one by now.
    """
    read = _reset_in(group)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        fields = {
            "metadata": {"resourceVersion": group.version},
            "spec": {"offsets": {"reset": _replacing(read, reset)}},
        }
        try:
            written = api.merge(CONSUMER_GROUP, group.namespace, group.name, fields, manager=manager)
            return parse_group(written)
        except Changed:
            again = read_group(api, group.namespace, group.name)
            if attempt == ATTEMPTS_MAX or again.uid != group.uid or _reset_in(again) != read:
                raise
            group = again
    raise AssertionError("the last attempt returns or raises")


def _reset_in(group: ConsumerGroup) -> Mapping[str, Any]:
    return (group.spec.get("offsets") or {}).get("reset") or {}


def _replacing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the merge patch that makes `after` of `before`: absent fields are removed by null."""
    patch: dict[str, Any] = {**dict.fromkeys(before), **after}
    return {
        name: _replacing(before[name], each)
        if isinstance(each, Mapping) and isinstance(before.get(name), Mapping)
        else each
        for name, each in patch.items()
    }


def read_plan(api: Api, namespace: str, name: str, plan_hash: str) -> list[PlannedOffset]:
    """Read a plan, from several ConfigMaps if it is large. Raises Failure if one is missing, or is not part of this plan."""
    first = api.get(CONFIG_MAP, namespace, name)
    parts = FIRST_PART.fullmatch(str((first.get("data") or {}).get("part", "")))
    if parts is None:
        raise _not_a_plan(namespace, name)
    found = list(_rows(first, namespace, name, plan_hash))
    for part in range(2, int(parts[1]) + 1):
        other = f"{name}-{part}"
        found += _rows(api.get(CONFIG_MAP, namespace, other), namespace, other, plan_hash)
    return found


def _rows(config_map: Object, namespace: str, name: str, plan_hash: str) -> Iterator[PlannedOffset]:
    data = config_map.get("data") or {}
    if data.get("planHash") != plan_hash:
        raise _not_a_plan(namespace, name)
    for row in csv.DictReader(io.StringIO(data.get("plan.csv", ""))):
        try:
            yield PlannedOffset(
                row["topic"],
                int(row["partition"]),
                int(row["oldOffset"]) if row["oldOffset"] else None,
                int(row["newOffset"]),
                row["oldTime"],
                row["newTime"],
                row["remark"],
            )
        except (KeyError, TypeError, ValueError):
            raise _not_a_plan(namespace, name) from None


def _not_a_plan(namespace: str, name: str) -> Failure:
    return Failure(
        f"configmap {namespace}/{name} does not hold the plan of this reset, or was edited: make a new dry run"
    )
