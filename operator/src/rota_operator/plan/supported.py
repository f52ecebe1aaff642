"""
What a spec asks for that nobody does yet: it is refused by its path, and never passed over.

Where there are processes instead of pods some fields mean nothing, because there is nothing that they could be about: no
images, no nodes. Those stand in manifests that are meant for a cluster too, and are passed over there alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rota_operator.plan.settings import ISOLATION
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import Path, Problem

NOT_YET: Sequence[Path] = (
    ("auth",),
    ("offsets", "reset"),
    ("autoscaling",),
    ("spark",),
    ("monitoring",),
    ("deletionPolicy",),
)
NOT_OF_PROCESSES: Sequence[Path] = (
    ("membership", "rackTopologyKey"),
    ("podDisruptionBudget",),
    ("sidecar", "image"),
    ("sidecar", "resources"),
)
# Isolation may be asked for as Kafka calls it.
PROPERTIES = (ISOLATION,)


def unsupported(spec: ConsumerGroupSpec) -> list[Problem]:
    """All of it: what is given otherwise than it would be by itself."""
    given = spec.model_dump(mode="json", by_alias=True)
    usual = _usual(spec)
    found = [
        Problem(("spec", *leaf), "is not supported yet; remove it")
        for path in NOT_YET
        for leaf in _differences(_at(given, path), _at(usual, path), path)
    ]
    found += [
        Problem(
            ("spec", "config", key), f"is not supported yet; remove it (supported: {', '.join(PROPERTIES)})"
        )
        for key in spec.config
        if key not in PROPERTIES
    ]
    return found


def _usual(spec: ConsumerGroupSpec) -> Mapping[str, Any]:
    """The same, with nothing in it that need not be given."""
    needed = {
        "bootstrap_servers",
        "topics",
        "topic_pattern",
        "scale_target_ref",
        "coordination",
        "coordinator_address",
    }
    told = {name: value for name, value in spec if name in needed}
    return ConsumerGroupSpec.model_construct(**told).model_dump(mode="json", by_alias=True)


def _at(held: Mapping[str, Any], path: Path) -> Any:  # noqa: ANN401  whatever is there
    found: Any = held
    for name in path:
        found = found[name]
    return found


def _differences(given: object, usual: object, path: Path) -> Iterator[Path]:
    """The fields that differ, as far down as both have fields."""
    if isinstance(given, dict) and isinstance(usual, dict):
        for name, value in given.items():
            yield from _differences(value, usual.get(name), (*path, name))
    elif given != usual:
        yield path
