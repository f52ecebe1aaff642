"""The page of the operator: readers are authenticated, see the groups that they may get, and learn who leads."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import aiohttp
import pytest

from rota_operator.cluster import page_groups
from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import Unavailable
from rota_operator.cluster.page_access import KNOWN_MAX, NO_TOKEN, REJECTED, AccessPorts, PageAccess
from rota_operator.cluster.page_groups import (
    GROUPS_SHOWN_MAX,
    PARTITIONS_RECORDED_MAX,
    PageGroups,
    VisibleGroups,
    id_of,
)
from rota_operator.cluster.queues import Key
from rota_operator.overview.recording import START
from rota_operator.page.server import Refused
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run, status
from tests.operator.cluster.page_world import (
    INVOICES,
    KEYS,
    LEADER,
    ORDERS,
    PARTITIONS,
    RETURNS,
    Groups,
    answer_of,
    serving_groups,
    token_for,
)

pytestmark = pytest.mark.process

Ask = Callable[..., Awaitable[tuple[int, Any]]]
REVIEWS = "reviews"


def play(
    story: Callable[[Ask, ApiServer, Groups], Awaitable[None]],
    answer: Callable[[Sent], Answer] = answer_of,
    *,
    is_leading: bool = True,
) -> None:
    """Serve the page of staged groups, and ask it."""
    server, groups = ApiServer(answer), Groups()

    async def served(api: Api) -> None:
        async with (
            serving_groups(api, groups if is_leading else None, LEADER if is_leading else "other") as address,
            aiohttp.ClientSession() as browser,
        ):

            async def ask(path: str, token: str = "", method: str = "GET", **headers: str) -> tuple[int, Any]:
                if token:
                    headers["Authorization"] = f"Bearer {token}"
                url = f"http://{address}{path}"
                async with browser.request(method, url, headers=headers) as response:
                    return response.status, await response.json()

            await story(ask, server, groups)

    run(server, served)


def shown(state: Mapping[str, Any]) -> list[str]:
    return [group["group_id"] for group in state["groups"]]


@pytest.mark.parametrize(
    ("user", "query", "expected"),
    [
        ("admin", "", ["billing/invoices", "shop/orders", "shop/returns"]),
        ("admin", "?namespace=billing", ["billing/invoices"]),
        ("shopkeeper", "", ["shop/orders", "shop/returns"]),
        ("shopkeeper", "?namespace=shop", ["shop/orders", "shop/returns"]),
        ("clerk", "", ["shop/orders"]),
        ("clerk", "?namespace=shop", ["shop/orders"]),
    ],
)
def test_a_reader_sees_the_groups_that_it_may_get(user: str, query: str, expected: list[str]) -> None:
    async def story(ask: Ask, server: ApiServer, _: Groups) -> None:
        code, state = await ask(f"/api/state{query}", user)
        assert (code, shown(state)) == (200, expected)
        assert state["coordinator"] == f"{LEADER}, read-only for {user}"
        assert state["workloads"] == []

    play(story)


@pytest.mark.parametrize(
    ("user", "query", "message"),
    [
        ("stranger", "", "stranger may not get consumergroups.rota.dev; ask for this right"),
        ("stranger", "?namespace=shop", "stranger may not get consumergroups.rota.dev in namespace shop; ask for this right"),
        ("shopkeeper", "?namespace=billing", "shopkeeper may not get consumergroups.rota.dev in namespace billing; ask for this right"),
        ("clerk", "?namespace=none", "clerk may not get consumergroups.rota.dev in namespace none; ask for this right"),
    ],
)  # fmt: skip
def test_a_reader_without_the_right_learns_which_one(user: str, query: str, message: str) -> None:
    async def story(ask: Ask, server: ApiServer, groups: Groups) -> None:
        views = groups.views
        for path in ("/api/state", "/api/events"):
            assert await ask(path + query, user) == (403, {"error": message})
        assert groups.views == views

    play(story)


def test_nothing_is_read_for_a_reader_that_is_not_authenticated() -> None:
    async def story(ask: Ask, server: ApiServer, groups: Groups) -> None:
        views = groups.views
        for path in ("/api/state", "/api/events"):
            assert await ask(path) == (401, {"error": NO_TOKEN})
            assert await ask(path, Authorization="Basic YTpi") == (401, {"error": NO_TOKEN})
            assert await ask(path, "nobody") == (401, {"error": REJECTED})
            assert (await ask(path, "admin" * 4_000))[0] == 400
        assert groups.views == views
        # The rejected token was reviewed once, the long one not at all.
        assert len([each for each in server.sent if each.path.endswith("/tokenreviews")]) == 1
        assert not any(each.path.endswith("/subjectaccessreviews") for each in server.sent)

    play(story)


def test_a_token_for_the_page_alone_is_reviewed_for_its_audience() -> None:
    async def story(ask: Ask, server: ApiServer, _: Groups) -> None:
        assert (await ask("/api/state", token_for("shopkeeper", "rota-page")))[0] == 200
        # For another server: it would be accepted there, and not here.
        assert await ask("/api/state", token_for("shopkeeper", "rota")) == (401, {"error": REJECTED})
        audiences = [each.body["spec"].get("audiences") for each in server.sent if each.path.endswith("/tokenreviews")]  # fmt: skip
        assert audiences == [["rota-page"], []]

    play(story)


def test_the_page_is_read_only_and_of_this_origin() -> None:
    async def story(ask: Ask, server: ApiServer, _: Groups) -> None:
        for path in ("/api/scale", "/api/reset"):
            code, said = await ask(path, "admin", "POST")
            assert code == 404
            assert said["error"].endswith("available: GET /, /api/state, /api/events")
        assert (await ask("/api/state", "admin", Origin="http://evil.example"))[0] == 403
        assert (await ask("/api/state", "admin", Host="rota.example"))[0] == 403

    play(story)


def test_a_process_that_does_not_lead_says_who_does() -> None:
    async def story(ask: Ask, server: ApiServer, _: Groups) -> None:
        said = f"other does not lead, {LEADER} does; run `kubectl rota ui` again"
        assert await ask("/api/state", "admin") == (503, {"error": said})
        # Not to strangers.
        assert (await ask("/api/state", "nobody"))[0] == 401

    play(story, is_leading=False)


def test_while_the_api_server_does_not_answer_nothing_is_shown() -> None:
    async def story(ask: Ask, server: ApiServer, _: Groups) -> None:
        code, said = await ask("/api/state", "admin")
        assert code == 503
        assert "cannot be checked" in said["error"]

    play(story, lambda sent: status(503, "ServiceUnavailable", "etcd is away"))
    play(story, lambda sent: status(403, "Forbidden", "no right to review"))


def test_answers_are_believed_for_a_while() -> None:
    now_s, rights, asked = 0.0, True, 0
    failing = False
    away = Unavailable("the API server is away")

    async def review_access(_: Mapping[str, Any]) -> bool:
        nonlocal asked
        asked += 1
        if failing:
            raise away
        return rights

    async def review_token(_: str, __: tuple[str, ...]) -> Mapping[str, Any]:
        if failing:
            raise away
        return {"authenticated": True, "user": {"username": "admin"}}

    async def story() -> None:
        nonlocal now_s, rights, failing
        access = PageAccess(AccessPorts(review_token, review_access, lambda: now_s))

        async def visible() -> Collection[Key]:
            return await access.visible(await access.authenticate("Bearer t"), KEYS, "shop")

        assert list(await visible()) == [ORDERS, RETURNS]
        await visible()
        assert asked == 1
        # The API server is away: what it has said is believed for five minutes.
        failing, now_s = True, 299
        await visible()
        now_s = 301
        with pytest.raises(Refused, match="cannot be checked now: the API server is away"):
            await visible()
        # A right that was taken away is noticed.
        failing, rights = False, False
        with pytest.raises(Refused, match="admin may not get"):
            await visible()

    asyncio.run(story())


def test_as_many_answers_are_kept_as_are_bounded() -> None:
    async def allowed(_: Mapping[str, Any]) -> bool:
        return True

    async def review_token(token: str, _: tuple[str, ...]) -> Mapping[str, Any]:
        return {"authenticated": True, "user": {"username": token}}

    async def story() -> None:
        access = PageAccess(AccessPorts(review_token, allowed, lambda: 0.0))
        for number in range(KNOWN_MAX + 10):
            await access.authenticate(f"Bearer {number}")
        assert len(access._known) == KNOWN_MAX

    asyncio.run(story())


def test_events_bring_what_was_recorded_and_what_is_new() -> None:
    async def story() -> None:
        groups = Groups()
        pages = PageGroups(groups, lambda: groups.now_ms)
        for second in range(18):
            groups.now_ms += 1_000
            groups.offsets(ORDERS, second)
            await pages.record_due()
        reader = VisibleGroups(pages, LEADER, [INVOICES, ORDERS])
        first = await reader.event({})
        document = json.loads(first.document)
        assert shown(document) == ["billing/invoices", "shop/orders"]
        (_, orders) = document["recorded"]
        # Every five seconds, and all partitions.
        assert len(orders["samples"]) == 4
        assert orders["samples"][-1]["group"][0] == PARTITIONS * (100 - 15)
        assert orders["changes"][0]["owners"] == {f"orders-{number}": "ab"[number % 2] for number in range(4)}

        # A rebalance is recorded at the next tick, not five seconds later.
        groups.now_ms += 1_000
        groups.stable(ORDERS, 2, "a")
        pages.changed(ORDERS)
        await pages.record_due()
        second_event = await reader.event(first.cursors)
        (_, orders) = json.loads(second_event.document)["recorded"]
        assert (orders["is_complete"], orders["samples"]) == (False, [])
        assert orders["changes"] == [{"at_ms": groups.now_ms, "owners": {"orders-1": "a", "orders-3": "a"}}]

    asyncio.run(story())


def test_readers_share_the_texts_of_groups_and_those_that_are_gone_are_forgotten() -> None:
    async def story() -> None:
        groups = Groups()
        pages = PageGroups(groups, lambda: groups.now_ms)
        await pages.record_due()
        views = groups.views
        for _ in range(10):
            await VisibleGroups(pages, LEADER, pages.keys).state()
        assert groups.views == views + len(KEYS)
        groups.keys.remove(ORDERS)
        del groups.overviews[ORDERS]
        groups.now_ms += 1_000
        await pages.record_due()
        assert pages.recorded(ORDERS, START) is None
        assert shown(json.loads(await VisibleGroups(pages, LEADER, [ORDERS, RETURNS]).state())) == [
            "shop/returns"
        ]

    asyncio.run(story())


def test_changed_owners_that_are_recorded_are_bounded_over_all_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_groups, "OWNERS_RECORDED_MAX", 3 * PARTITIONS)

    async def story() -> None:
        groups = Groups([ORDERS, RETURNS])
        pages = PageGroups(groups, lambda: groups.now_ms)
        for generation in range(2, 12):
            groups.now_ms += 1_000
            for key in (ORDERS, RETURNS):
                groups.stable(key, generation, "ab"[generation % 2])
                pages.changed(key)
            await pages.record_due()
        recorded = [json.loads(pages.recorded(key, START)[0]) for key in (ORDERS, RETURNS)]  # type: ignore[index]
        kept = [len(change["owners"]) for group in recorded for change in group["changes"]]
        assert sum(kept) == 3 * PARTITIONS
        # Room that a group leaves is another one's.
        groups.keys.remove(RETURNS)
        for generation in range(12, 20):
            groups.now_ms += 1_000
            groups.stable(ORDERS, generation, "ab"[generation % 2])
            pages.changed(ORDERS)
            await pages.record_due()
        orders = json.loads(pages.recorded(ORDERS, START)[0])  # type: ignore[index]
        assert len(orders["changes"]) == 3

    asyncio.run(story())


def test_partitions_that_are_recorded_and_groups_that_are_shown_are_bounded() -> None:
    async def story() -> None:
        count = PARTITIONS_RECORDED_MAX // PARTITIONS + 10
        groups = Groups([Key("shop", f"group-{number:03}") for number in range(count)])
        pages = PageGroups(groups, lambda: groups.now_ms)
        await pages.record_due()
        recorded = [
            json.loads(found[0])["samples"][0]
            for key in pages.keys
            if (found := pages.recorded(key, START)) is not None
        ]
        assert len(recorded) == count
        assert sum(len(each["partitions"]) for each in recorded) == PARTITIONS_RECORDED_MAX
        state = json.loads(await VisibleGroups(pages, LEADER, pages.keys).state())
        assert shown(state) == [id_of(key) for key in pages.keys[:GROUPS_SHOWN_MAX]]
        assert state["groups_left_out"] == count - GROUPS_SHOWN_MAX

    asyncio.run(story())
