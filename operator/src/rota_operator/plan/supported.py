"""
Finds fields of a spec that are not implemented yet; they are rejected by path, never ignored.

IGNORED_FIELDS apply to pods only (images, nodes): local processes ignore them, because the same manifests are meant for a
cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rota_operator.plan.settings import ISOLATION
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import FieldError, Path

UNSUPPORTED_FIELDS: Sequence[Path] = (
    ("auth",),
    ("offsets", "reset"),
    ("autoscaling",),
    ("spark",),
    ("monitoring",),
    ("deletionPolicy",),
)
IGNORED_FIELDS: Sequence[Path] = (
    ("membership", "rackTopologyKey"),
    ("podDisruptionBudget",),
    ("sidecar", "image"),
    ("sidecar", "resources"),
)
# Isolation may be asked for as Kafka calls it.
SUPPORTED_PROPERTIES = (ISOLATION,)


def unsupported(spec: ConsumerGroupSpec) -> list[FieldError]:
    """Return an error for each unsupported field with a value other than its default."""
    given = spec.model_dump(mode="json", by_alias=True)
    defaults = _with_defaults(spec)
    found = [
        FieldError(("spec", *leaf), "is not supported yet; remove it")
        for path in UNSUPPORTED_FIELDS
        for leaf in _differences(_value_at(given, path), _value_at(defaults, path), path)
    ]
    found += [
        FieldError(
            ("spec", "config", key),
            f"is not supported yet; remove it (supported: {', '.join(SUPPORTED_PROPERTIES)})",
        )
        for key in spec.config
        if key not in SUPPORTED_PROPERTIES
    ]
    return found


def _with_defaults(spec: ConsumerGroupSpec) -> Mapping[str, Any]:
    """Return the spec with defaults for all optional fields."""
    needed = {
        "bootstrap_servers",
        "topics",
        "topic_pattern",
        "scale_target_ref",
        "coordination",
        "coordinator_address",
    }
    settings = {name: value for name, value in spec if name in needed}
    return ConsumerGroupSpec.model_construct(**settings).model_dump(mode="json", by_alias=True)


def _value_at(held: Mapping[str, Any], path: Path) -> Any:  # noqa: ANN401  whatever is there
    found: Any = held
    for name in path:
        found = found[name]
    return found


def _differences(given: object, defaults: object, path: Path) -> Iterator[Path]:
    """Yield the paths of the fields that differ."""
    if isinstance(given, dict) and isinstance(defaults, dict):
        for name, value in given.items():
            yield from _differences(value, defaults.get(name), (*path, name))
    elif given != defaults:
        yield path
