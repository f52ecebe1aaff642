"""A sidecar passes its membership to one pod, takes over at most one before it has any, and joins by itself where no operator orders it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.lifecycle.succession import GivenUp, Succession

pytestmark = pytest.mark.unit
FIRST, SECOND = SavedMembership("m-1", 3), SavedMembership("m-2", 3)


class Pod:
    """A succession, and what its member was admitted with."""

    def __init__(self, *, orders_join: bool = True, has_membership: bool = False) -> None:
        self.admitted: list[SavedMembership | None] = []
        self.changes = 0
        self.succession = Succession(self.admitted.append, self._changed)
        if orders_join:
            self.succession.announced(orders_join=True)
        self.succession.begin(is_ordered=True, has_membership=has_membership)

    def given_up(self) -> GivenUp | None:
        return self.succession.given_up

    def may_await(self) -> bool:
        return self.succession.may_await_successor

    def _changed(self) -> None:
        self.changes += 1


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def body() -> None:
        await story()

    asyncio.run(body())


def test_it_joins_once_when_it_is_ordered() -> None:
    async def story() -> None:
        pod = Pod()
        assert pod.succession.awaits_order
        pod.succession.join()
        pod.succession.join()
        assert (pod.admitted, pod.changes) == ([None], 1)
        assert not pod.succession.is_held

    run(story)


def test_it_takes_one_membership_over_and_answers_its_repetition() -> None:
    async def story() -> None:
        pod = Pod()
        assert pod.succession.take_over(FIRST)
        assert pod.succession.take_over(FIRST)
        assert not pod.succession.take_over(SECOND), "it is to be removed from the group"
        assert pod.admitted == [FIRST]

    run(story)


@pytest.mark.parametrize("orders_join", [True, False])
def test_a_member_takes_none_over(orders_join: bool) -> None:
    async def story() -> None:
        resumed = Pod(orders_join=orders_join, has_membership=True)
        assert not resumed.succession.is_held
        assert not resumed.succession.take_over(FIRST)
        joined = Pod()
        joined.succession.join()
        assert not joined.succession.take_over(FIRST)

    run(story)


def test_one_that_would_join_by_itself_soon_takes_it_over() -> None:
    async def story() -> None:
        pod = Pod(orders_join=False)
        assert pod.succession.is_held
        assert not pod.succession.awaits_order
        assert pod.succession.take_over(FIRST)

    run(story)


def test_what_it_gives_up_is_for_the_pod_that_was_named_last() -> None:
    async def story() -> None:
        pod = Pod(has_membership=True)
        pod.succession.hand_over("a")
        pod.succession.hand_over("b")
        pod.succession.begin_giving_up()
        pod.succession.hand_over("c")
        pod.succession.member_gave_up(FIRST)
        assert not pod.given_up(), "its process may still resume it"
        pod.succession.member_ended(is_still_saved=False)
        assert pod.given_up() == GivenUp(FIRST, "b")
        assert pod.succession.awaits_order
        assert not pod.succession.take_over(SECOND), "its pod ends"
        pod.succession.join()
        assert pod.given_up() == GivenUp(FIRST, "b"), "until its process ends"

    run(story)


def test_nothing_is_passed_on_that_is_still_on_the_disk_or_was_not_given_up() -> None:
    async def story() -> None:
        pod = Pod(has_membership=True)
        pod.succession.hand_over("a")
        pod.succession.begin_giving_up()
        pod.succession.member_gave_up(FIRST)
        pod.succession.member_ended(is_still_saved=True)
        assert pod.succession.given_up is None
        left = Pod(has_membership=True)
        left.succession.hand_over("a")
        left.succession.begin_giving_up()
        left.succession.member_ended(is_still_saved=False)
        assert (left.succession.given_up, left.succession.successor) == (None, "")

    run(story)


def test_it_awaits_a_successor_only_where_the_operator_orders_it() -> None:
    async def story() -> None:
        pod = Pod(has_membership=True)
        assert pod.may_await()
        pod.succession.stream_ended()
        assert not pod.may_await()
        pod.succession.announced(orders_join=True)
        assert pod.may_await()
        assert not Pod().succession.may_await_successor, "it is no member"

    run(story)
