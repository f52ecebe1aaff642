"""While offsets are reset, the settings of the sidecars suspend the members, whatever else changes in them."""

import json

import pytest

from rota_operator.reconcile import actions as do
from rota_operator.reconcile.observed import GroupStrategies, SidecarStrategies
from rota_operator.reconcile.strategy import written_in
from rota_operator.resets.machine import SUSPENDED_PHASES, Phase
from tests.operator.reconcile.worlds import World, resource


def suspended_in(world: World, phase: Phase) -> bool:
    """Reconcile in this phase; whether file and order, which are the same, suspend the members."""
    world.group["status"] = {**world.group.get("status", {}), "offsetReset": {"phase": phase.value}}
    (configure,) = [each for each in world.reconcile().actions if isinstance(each, do.Configure)]
    written = json.loads(world.config_map["data"]["settings.json"])
    assert written == json.loads(configure.settings)
    suspended: bool = written.get("suspend", False)
    return suspended


@pytest.mark.parametrize("phase", Phase)
def test_settings_suspend_the_members_until_the_offsets_are_set(phase: Phase) -> None:
    world = World(resource())
    world.reconcile()
    world.edit(delivery={"concurrency": 7})
    assert suspended_in(world, phase) is (phase in SUSPENDED_PHASES)
    assert json.loads(world.config_map["data"]["settings.json"])["delivery"]["concurrency"] == 7
    assert not suspended_in(world, Phase.COMPLETED)


def test_a_group_that_the_spec_suspends_stays_so_after_the_reset() -> None:
    world = World(resource(suspend=True))
    world.reconcile()
    assert suspended_in(world, Phase.COMMITTING)
    assert suspended_in(world, Phase.COMPLETED)


def test_a_change_of_strategy_goes_on_while_offsets_are_reset() -> None:
    """Both rounds, each with the suspension."""
    world = World(resource(assignment={"strategy": "range"}))
    world.reconcile()
    world.strategies = GroupStrategies("range", {"a": SidecarStrategies("range", ("range",))})
    world.edit(assignment={"strategy": "sticky"})
    assert suspended_in(world, Phase.SUSPENDING)
    assert written_in(world.config_map) == ("sticky", "range")
    world.strategies = GroupStrategies("sticky", {"a": SidecarStrategies("sticky", ("sticky", "range"))})
    assert suspended_in(world, Phase.COMMITTING)
    assert written_in(world.config_map) == ("sticky",)
    assert not suspended_in(world, Phase.RESUMING)
