"""Rebalances that are coalesced: how many generations a crowd of joins makes."""

import asyncio

import pytest

from rota_coordinator.core.group.config import GroupConfig
from tests.conformance.core import CoreCall, CoreDriver
from tests.conformance.driver import Settings
from tests.conformance.members import Member, form

JOINS = 100
GROUP = "g"
# All joins arrive within 200 ms, less than the shipped coalescing.
BETWEEN_S = 0.002


async def generations_of_a_crowd(driver: CoreDriver) -> int:
    """The generations that a stable group goes through when members join one after the other, and all rejoin at once."""
    first = Member(driver, GROUP)
    await form(first)
    stable = first.generation
    present, calls = [first], dict[int, CoreCall]()
    for _ in range(JOINS):
        newcomer = Member(driver, GROUP)
        await newcomer.take_id()
        calls[len(present)] = driver.send(newcomer.join_request())
        for number, member in enumerate(present):
            call = calls.get(number)
            if call is None or call.call in driver.answers:
                calls[number] = driver.send(member.join_request())
        present.append(newcomer)
        await driver.pass_time(BETWEEN_S)
    for number, member in enumerate(present):
        await member.joined(calls[number])
    (latest,) = {member.generation for member in present}
    return latest - stable


@pytest.mark.parametrize(
    ("coalesce_ms", "generations"), [(GroupConfig().rebalance_coalesce_ms, 1), (0, JOINS)]
)
def test_a_hundred_joins_are_one_generation_when_they_are_coalesced(
    coalesce_ms: int, generations: int
) -> None:
    driver = CoreDriver(Settings(rebalance_coalesce_ms=coalesce_ms))
    assert asyncio.run(generations_of_a_crowd(driver)) == generations
