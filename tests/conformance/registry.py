"""The cases by their number in the reference, and what each is set up with."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from tests.conformance.driver import DEFAULT, Driver, Settings

Body = Callable[[Driver], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One rule, shown on one coordinator."""

    id: str
    body: Body
    settings: Settings

    @property
    def rule(self) -> str:
        return self.body.__name__


CASES: dict[str, Case] = {}


def case(case_id: str, settings: Settings = DEFAULT) -> Callable[[Body], Body]:
    """Register a case; its name is the rule."""

    def register(body: Body) -> Body:
        assert case_id not in CASES, f"case {case_id} is there already"
        CASES[case_id] = Case(case_id, body, settings)
        return body

    return register
