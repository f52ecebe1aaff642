"""Whatever happens, the invariants that the classes of the delivery core state hold after each step."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from typing_extensions import override

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import delivery as delivery_module
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.delivery import Core
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.delivery.states import FetchingCommitted, ResolvingOffset, Revoking, Running
from rota_sidecar.core.ledger import ledger as ledger_module
from tests.sidecar.core.delivery.resting import come_to_rest
from tests.sidecar.core.delivery.test_delivery_properties import EVENTS, OFTEN, drawn
from tests.sidecar.core.delivery.world import World

FOLDERS = [Path(delivery_module.__file__).parent, Path(ledger_module.__file__).parent]
STEPS = 150


class CheckedWorld(World):
    """A world whose delivery core is checked after each step."""

    @override
    def step(self, event: on.Event) -> list[do.Action]:
        actions = super().step(event)
        check(self.delivery._core)
        return actions


def check(core: Core) -> None:
    states = core.partition_states
    assert core.context.in_flight == sum(state.in_flight for state in states.values())
    assert not core.context.has_touched
    for partition, state in states.items():
        assert state.partition == partition
        assert state.is_revoking == isinstance(state.state, Revoking)
        check_session(core, state)


def check_session(core: Core, state: PartitionState) -> None:
    session = state.session
    if isinstance(state.state, Running):
        assert session is not None
    if isinstance(state.state, FetchingCommitted | ResolvingOffset):
        assert session is None
    if session is None:
        assert state.in_flight == 0
        assert not state.takes_part
        return
    assert core.context.owner_of(session.number) == state.partition
    assert state.in_flight == session.ledger.in_flight
    assert isinstance(state.state, Running) or not session.prefetch.is_under_way
    first = session.ledger.first_unresolved
    assert session.ledger.point.offset <= (session.ledger.position if first is None else first[1])


@pytest.mark.parametrize("seed", range(0, 100, 25))
def test_the_invariants_hold_after_each_step(seed: int) -> None:
    for each in range(seed, seed + 25):
        chance = Random(f"invariants {each}")
        world = CheckedWorld(drawn(chance))
        for _ in range(STEPS):
            EVENTS[chance.choice(OFTEN + sorted(EVENTS))](world, chance.randrange(21), chance.randrange(21))
        come_to_rest(world)


# ---------------------------------------------------------------------------------------------- shape


def is_final(node: ast.AnnAssign | ast.AugAssign) -> bool:
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "Final"


def assigned(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the targets of an assignment."""
    targets: Sequence[ast.expr] = ()
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign) and not is_final(node):
        targets = [node.target]
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def mutable_fields(source: str) -> list[str]:
    """Return public attributes that are assigned anywhere, and dataclasses that are not frozen."""
    tree = ast.parse(source)
    found = [
        f"{target.attr}: make it private, and change it by a method"
        for node in ast.walk(tree)
        for target in assigned(node)
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_")
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if any("dataclass" in each and "frozen=True" not in each for each in decorators):
                found.append(f"{node.name}: freeze the dataclass")
    return found


def test_no_part_of_the_core_has_a_public_mutable_field() -> None:
    offenders = [
        f"{path.name}: {message}"
        for folder in FOLDERS
        for path in sorted(folder.glob("*.py"))
        for message in mutable_fields(path.read_text())
    ]
    assert offenders == [], "\n".join(offenders)


def test_a_public_field_and_a_mutable_dataclass_are_found() -> None:
    assert mutable_fields("class A:\n    def __init__(self):\n        self.b: Final = 1\n") == []
    source = "@dataclass\nclass A:\n    b: int\n\n\ndef c(self, d):\n    d.e, self._f = 1, 2\n"
    assert [message.split(":")[0] for message in mutable_fields(source)] == ["e", "A"]
