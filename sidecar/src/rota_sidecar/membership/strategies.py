"""
The strategies that there are: our own, and those that installed distributions offer.

A distribution offers a class as an entry point of the group `rota.assignors`. Asked when the sidecar starts.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from rota_sidecar.core.assignors.built_in import built_in
from rota_sidecar.core.assignors.model import Assignor

GROUP = "rota.assignors"


class StrategyError(ValueError):
    """A strategy that cannot be used; says in a sentence why."""


def strategy(name: str, max_moved_percent: int) -> Assignor:
    """One by its name. Raises StrategyError."""
    ours = built_in(max_moved_percent)
    if name in ours:
        return ours[name]
    offered = _offered()
    if name not in offered:
        there_are = ", ".join(sorted({*ours, *offered}))
        raise StrategyError(
            f"there is no strategy {name}: choose one of {there_are}, or install the one you mean"
        )
    return _made(offered[name])


def known(max_moved_percent: int) -> Mapping[str, Assignor]:
    """All of them by name. Raises StrategyError if one that is installed cannot be used."""
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
        raise StrategyError(f"{at} has the name of one of Rota's own: give its entry point another name")
    try:
        found = point.load()()
    except Exception as error:
        raise StrategyError(
            f"{at} cannot be made: {type(error).__name__}: {error}; mend it, or uninstall what brings it"
        ) from error
    wrong = _problem(point.name, found)
    if wrong:
        raise StrategyError(f"{at} is no assignor: {wrong}")
    assignor: Assignor = found
    return assignor


def _problem(name: str, found: object) -> str:
    if getattr(found, "name", None) != name:
        return f"its attribute `name` is not {name!r}, which is what its entry point is called"
    if not isinstance(getattr(found, "cooperative", None), bool):
        return "its attribute `cooperative` is neither True nor False"
    if not callable(getattr(found, "assign", None)):
        return "it has no method `assign(group)`"
    return ""
