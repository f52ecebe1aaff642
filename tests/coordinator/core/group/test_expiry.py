"""Offsets that are unused expire (case 125 of the reference), in virtual time: a week passes at once."""

import asyncio
from collections.abc import Callable, Coroutine

from rota_coordinator.core.group.config import DAY_MS
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.core import CoreDriver
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, fetch, form

GROUP = "g"
WEEK_S = 7 * DAY_MS / 1000


def play(body: Callable[[CoreDriver], Coroutine[None, None, None]]) -> None:
    asyncio.run(body(CoreDriver(DEFAULT)))


def look(driver: CoreDriver) -> None:
    """Expire offsets as the server does every few minutes."""
    for group_id in list(driver.groups.groups):
        driver.perform(driver.groups.expire_offsets(group_id, MonotonicMs(driver.now_ms)))


def test_offsets_of_an_emptied_group_expire_and_take_it_along() -> None:
    async def body(driver: CoreDriver) -> None:
        member = Member(driver, GROUP)
        await form(member)
        await member.commit({0: 1})
        await driver.pass_time(WEEK_S)  # its session ends, and the group is empty from then on
        look(driver)
        assert await fetch(driver, GROUP, 0) == {0: 1}
        await driver.pass_time(60)
        look(driver)
        assert driver.groups.groups == {}
        assert await fetch(driver, GROUP, 0) == {0: -1}

    play(body)


def test_offsets_of_a_group_with_members_never_expire() -> None:
    async def body(driver: CoreDriver) -> None:
        member = Member(driver, GROUP, session_ms=30 * 60_000)
        await form(member)
        await member.commit({0: 1})
        for _ in range(700):
            await driver.pass_time(20 * 60)
            assert await member.heartbeat() == pb.NONE
        look(driver)
        assert await fetch(driver, GROUP, 0) == {0: 1}

    play(body)


def test_offsets_without_a_group_expire_one_by_one() -> None:
    async def body(driver: CoreDriver) -> None:
        member = Member(driver, GROUP)
        await member.commit({0: 1})
        await driver.pass_time(3600)
        await member.commit({1: 2})
        await driver.pass_time(WEEK_S - 3600)
        look(driver)
        assert await fetch(driver, GROUP) == {1: 2}

    play(body)


def test_a_group_that_comes_again_is_younger_than_the_one_that_expired() -> None:
    async def body(driver: CoreDriver) -> None:
        await Member(driver, GROUP).commit({0: 1})
        before = driver.groups.groups[GROUP].incarnation
        await driver.pass_time(WEEK_S)
        look(driver)
        await Member(driver, GROUP).commit({0: 1})
        assert driver.groups.groups[GROUP].incarnation > before

    play(body)
