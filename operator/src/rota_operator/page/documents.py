"""
JSON documents of the page: the state, and the events of its stream, which add what was recorded since the one before.

The local runner makes them from a `View`. The operator joins parts that readers share: a group's text is made once for all of them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from rota_operator.overview.recording import RecordingDelta
from rota_operator.overview.samples import Sample
from rota_operator.overview.view import GroupView, View


def state_document(view: View) -> str:
    """Return the state as JSON."""
    return _json(asdict(view))


def event_document(view: View, recorded: Sequence[RecordingDelta]) -> str:
    """Return one event as JSON: the state, and in `recorded` what was recorded since the event before."""
    return _json({**asdict(view), "recorded": [_delta(each) for each in recorded]})


def group_text(group: GroupView) -> str:
    """Return one group as JSON, for `joined`."""
    return _json(asdict(group))


def delta_text(delta: RecordingDelta) -> str:
    """Return what was recorded of one group as JSON, for `joined`."""
    return _json(_delta(delta))


def joined(
    at_ms: int, source: str, groups: Sequence[str], left_out: int, recorded: Sequence[str] | None
) -> str:
    """Join the texts of groups to a state, or with what was recorded to an event; `source` names the server."""
    head = _json({"at_ms": at_ms, "coordinator": source, "groups_left_out": left_out, "workloads": ()})
    lists = {"groups": groups} if recorded is None else {"groups": groups, "recorded": recorded}
    return head[:-1] + "".join(f',"{name}":[{",".join(texts)}]' for name, texts in lists.items()) + "}"


def _delta(delta: RecordingDelta) -> Mapping[str, Any]:
    # Not `asdict`, which copies each value: there are some hundred thousand in the first event of a large group.
    return {
        "group_id": delta.group_id,
        "is_complete": delta.is_complete,
        "samples": list(_samples(delta.samples)),
        "changes": [{"at_ms": each.at_ms, "owners": each.owners} for each in delta.changes],
        "signs": delta.signs,
    }


def _samples(samples: Sequence[Sample]) -> Iterator[Mapping[str, Any]]:
    """Yield the samples with the partitions' names where they differ from those of the sample before."""
    names: tuple[str, ...] | None = None
    for each in samples:
        same = names is not None and each.names == names
        named = {} if same else {"names": each.names}
        yield {"at_ms": each.at_ms, "group": each.group, **named, "partitions": each.partitions}
        names = each.names


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, default=_to_jsonable, separators=(",", ":"))


def _to_jsonable(value: object) -> Any:  # noqa: ANN401  whatever JSON has
    """Encode a value that the json module does not know."""
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"cannot serialize {type(value).__name__} to JSON")
