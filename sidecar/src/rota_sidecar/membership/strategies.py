"""
Finds assignment strategies by name: the built-in ones, and those of installed distributions.

A distribution offers a class as an entry point of the group `rota.assignors`. Called when the sidecar starts.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from rota_sidecar.core.assignors.built_in import built_in
from rota_sidecar.core.assignors.model import Assignor

GROUP = "rota.assignors"


class StrategyError(ValueError):
    """A strategy cannot be used; the message says why and what to do."""


def strategy(name: str, max_moved_percent: int) -> Assignor:
    """Return a strategy by its name. Raises StrategyError."""
    ours = built_in(max_moved_percent)
    if name in ours:
        return ours[name]
    offered = _offered()
    if name not in offered:
        there_are = ", ".join(sorted({*ours, *offered}))
        raise StrategyError(
            f'unknown strategy "{name}"; expected one of {there_are}, or install the distribution that offers it'
        )
    return _made(offered[name])


def known(max_moved_percent: int) -> Mapping[str, Assignor]:
    """Return all strategies by name. Raises StrategyError if an installed one cannot be used."""
    ours = built_in(max_moved_percent)
    return ours | {name: _made(point) for name, point in sorted(_offered().items())}


def _offered() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise StrategyError(
                f"two distributions offer a strategy {point.name} ({other.value} and {point.value}): uninstall one"
            )
    return found


def _made(point: EntryPoint) -> Assignor:
    at = f"the strategy {point.name} ({point.value})"
    if point.name in built_in(100):
        raise StrategyError(f"{at} has the name of a built-in strategy: rename its entry point")
    try:
        found = point.load()()
    except Exception as error:
        raise StrategyError(
            f"{at} cannot be created: {type(error).__name__}: {error}; correct it or uninstall its distribution"
        ) from error
    wrong = _problem(point.name, found)
    if wrong:
        raise StrategyError(f"{at} is not an assignor: {wrong}")
    assignor: Assignor = found
    return assignor


def _problem(name: str, found: object) -> str:
    if getattr(found, "name", None) != name:
        return f"its attribute `name` must be {name!r}, as its entry point"
    if not isinstance(getattr(found, "cooperative", None), bool):
        return "its attribute `cooperative` must be True or False"
    if not callable(getattr(found, "assign", None)):
        return "it has no method `assign(group)`"
    return ""
