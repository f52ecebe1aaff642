"""Division of a capacity."""

from collections.abc import Sequence


def fair_shares(wanted: Sequence[float], capacity: float) -> list[float]:
    """Divide a capacity so that each gets as much as any other, or all that it wants (max-min fairness)."""
    given = [0.0] * len(wanted)
    left = capacity
    by_size = sorted(range(len(wanted)), key=wanted.__getitem__)
    for served, index in enumerate(by_size):
        given[index] = min(wanted[index], left / (len(by_size) - served))
        left -= given[index]
    return given
