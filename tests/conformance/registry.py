"""The cases by their number in the reference, what each is set up with, and on which coordinators it runs."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.conformance.driver import CORE, DEFAULT, KAFKA, ROTA, Settings

# Takes the driver: `Driver`, or what the coordinators that it runs on can do beside.
Body = Callable[[Any], Coroutine[None, None, None]]

EVERYWHERE = frozenset({CORE, ROTA, KAFKA})
# What Rota has no words for: older versions of messages, several groups in one, filters that are texts.
KAFKA_ONLY = frozenset({KAFKA})
# The core knows the groups of one slot, and nothing of processes.
SEVERAL_PROCESSES = frozenset({ROTA, KAFKA})


@dataclass(frozen=True, slots=True)
class Case:
    """One rule, shown on one coordinator."""

    id: str
    body: Body
    settings: Settings
    on: frozenset[str]

    @property
    def rule(self) -> str:
        return self.body.__name__


CASES: dict[str, Case] = {}


def case(
    case_id: str, settings: Settings = DEFAULT, *, on: frozenset[str] = EVERYWHERE
) -> Callable[[Body], Body]:
    """Register a case; its name is the rule. A letter after the number says that it is one more part of it."""

    def register(body: Body) -> Body:
        assert case_id not in CASES, f"case {case_id} is there already"
        CASES[case_id] = Case(case_id, body, settings, on)
        return body

    return register


def cases_on(coordinator: str) -> list[Case]:
    """The cases that run on a coordinator."""
    return [case for case in CASES.values() if coordinator in case.on]
