"""JSON documents of the page: the state, and the events of its stream, which add what was recorded since the one before."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from rota_operator.overview.recording import RecordingDelta
from rota_operator.overview.samples import Sample
from rota_operator.overview.view import View


def state_document(view: View) -> str:
    """Return the state as JSON."""
    return _json(asdict(view))


def event_document(view: View, recorded: Sequence[RecordingDelta]) -> str:
    """Return one event as JSON: the state, and in `recorded` what was recorded since the event before."""
    return _json({**asdict(view), "recorded": [_delta(each) for each in recorded]})


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
