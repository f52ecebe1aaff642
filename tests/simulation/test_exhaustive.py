"""Small cases in every order of events: no invariant is violated, no client is stuck."""

from collections.abc import Mapping

import pytest

from tests.simulation.exhaustive import search
from tests.simulation.invariants import Violation
from tests.simulation.small_world import Case
from tests.simulation.zoo import ZOO

# They only compute, for as long as the machine needs: a hang is what takes ten times as long as usual.
pytestmark = [pytest.mark.simulation, pytest.mark.timeout(1_200)]

WHOLE = 1_000
DISTURBANCES = {"crashes": 1, "leaves": 1, "commits": 1, "repeats": 1}
# (case, how deep in `make test`, how deep in a soak)
CASES: Mapping[str, tuple[Case, int, int]] = {
    "undisturbed": (Case(), WHOLE, WHOLE),
    "with a crash": (Case(crashes=1), 11, WHOLE),
    "with a crash and a leave": (Case(crashes=1, leaves=1), 10, WHOLE),
    "with all troubles": (Case(**DISTURBANCES), 9, 15),
    "static members": (Case(statics=2, coalesce_ms=250, **DISTURBANCES), 9, 14),
}


@pytest.mark.soak("exhaustive")
@pytest.mark.parametrize("name", CASES)
def test_no_order_breaks_an_invariant(name: str, report: list[str], request: pytest.FixtureRequest) -> None:
    case, depth, deep = CASES[name]
    found = search(case, deep if request.config.getoption("--soak") else depth)
    extent = "all of them" if found.open == 0 else f"to a depth of {found.depth}"
    report.append(
        f"three members, {name}: {found.states} states, {found.transitions} transitions, {extent}; "
        f"{found.final} with the second generation complete"
    )
    assert found.final > 0
    assert found.stuck == 0


@pytest.mark.parametrize(
    "bug", ["generations are not written", "assignments are not written", "everybody gets the leader's part"]
)
def test_a_known_bug_is_found(bug: str) -> None:
    with ZOO[bug](), pytest.raises((Violation, KeyError)):
        search(Case(crashes=1), 12)
