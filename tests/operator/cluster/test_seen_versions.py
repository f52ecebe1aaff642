"""Lists from the past are not decided on, unless the API server's store was restored; and a server that asks for patience gets it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from rota_operator.cluster import api as api_module
from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import Outdated, Unavailable
from rota_operator.cluster.kinds import CONFIG_MAP, DEPLOYMENT, LEASE, POD
from rota_operator.cluster.seen_versions import RESTORED_S, SeenVersions
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_list_is_compared_with_the_newest_version_of_its_kind_as_a_number() -> None:
    seen = SeenVersions(Clock())
    seen.note(POD, "100")
    seen.note(POD, "99")
    assert seen.newest(POD) == "100"
    assert not seen.admit(POD, "99", seen.newest(POD))
    assert seen.admit(POD, "100", seen.newest(POD))
    assert seen.admit(DEPLOYMENT, "7", seen.newest(DEPLOYMENT))


def test_a_list_is_not_compared_with_what_was_seen_after_it_was_asked_for() -> None:
    seen = SeenVersions(Clock())
    seen.note(POD, "5")
    newest = seen.newest(POD)
    seen.note(POD, "9")
    assert seen.admit(POD, "7", newest)
    assert seen.newest(POD) == "9"


def test_versions_that_stay_older_are_those_of_a_restored_store() -> None:
    clock = Clock()
    seen = SeenVersions(clock)
    seen.note(POD, "100")
    assert not seen.admit(POD, "50", "100")
    clock.now_s = RESTORED_S - 1
    assert not seen.admit(POD, "51", "100")
    clock.now_s = RESTORED_S
    assert seen.admit(POD, "52", "100")
    assert seen.newest(POD) == "52"


def test_a_newer_list_in_between_begins_the_time_anew() -> None:
    clock = Clock()
    seen = SeenVersions(clock)
    seen.note(POD, "100")
    assert not seen.admit(POD, "50", "100")
    assert seen.admit(POD, "101", "100")
    clock.now_s = RESTORED_S
    assert not seen.admit(POD, "50", "101")


def test_a_new_term_trusts_nothing_of_the_former_one() -> None:
    seen = SeenVersions(Clock())
    seen.note(POD, "100")
    seen.forget()
    assert seen.admit(POD, "50", seen.newest(POD))


def listing(version: str, *names: str, more: str = "") -> Mapping[str, Any]:
    items = [{"metadata": {"name": name}} for name in names]
    return {"items": items, "metadata": {"resourceVersion": version, **({"continue": more} if more else {})}}


def test_a_list_that_is_older_than_a_write_before_it_raises_outdated_before_its_first_object() -> None:
    def answer(sent: Sent) -> Answer:
        if sent.method == "PATCH":
            return Answer(body={"metadata": {"resourceVersion": "12"}})
        return Answer(body=listing("11", "from-the-past"))

    async def story(api: Api) -> None:
        assert [each async for each in api.list(DEPLOYMENT, "shop")] == [
            {"metadata": {"name": "from-the-past"}}
        ]
        await api.patch(DEPLOYMENT, "shop", "orders", {})
        found: list[object] = []
        with pytest.raises(Outdated, match="version 11, which is older than 12 seen before"):
            found += [each async for each in api.list(DEPLOYMENT, "shop")]
        assert found == []

    run(ApiServer(answer), story)


def test_the_pages_of_a_list_are_of_the_version_of_the_first_one() -> None:
    pages = {None: listing("5", "a", more="next"), "next": listing("5", "b")}
    server = ApiServer(lambda sent: Answer(body=pages[sent.query.get("continue")]))

    async def story(api: Api) -> None:
        names = []
        async for each in api.list(DEPLOYMENT, "shop"):
            names.append(each["metadata"]["name"])
            # Something is written meanwhile.
            api.seen.note(DEPLOYMENT, "9")
        assert names == ["a", "b"]

    run(server, story)


class Overloaded(ApiServer):
    """Answers the first request with a Retry-After."""

    def __init__(self, retry_after: str) -> None:
        self._left = iter([retry_after])
        super().__init__(self._reply)

    def _reply(self, sent: Sent) -> Answer:
        if (retry_after := next(self._left, None)) is None:
            return Answer(body={"metadata": {}})
        return Answer(429, {"message": "too many requests"}, {"Retry-After": retry_after})


@pytest.mark.parametrize(
    ("retry_after", "waits"), [("1", True), ("0", False), ("Wed, 21 Oct 2026 07:28:00 GMT", False)]
)
def test_requests_wait_as_long_as_an_overloaded_server_asks_and_leases_do_not(
    retry_after: str, *, waits: bool
) -> None:
    async def story(api: Api) -> None:
        clock = asyncio.get_running_loop().time
        with pytest.raises(Unavailable):
            await api.get(CONFIG_MAP, "shop", "orders")
        since_s = clock()
        await api.get(LEASE, "rota", "operator")
        assert clock() - since_s < 0.9
        await api.get(CONFIG_MAP, "shop", "orders")
        assert (clock() - since_s >= 0.9) == waits

    run(Overloaded(retry_after), story)


def test_nobody_waits_for_longer_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PATIENCE_S_MAX", 0.2)

    async def story(api: Api) -> None:
        with pytest.raises(Unavailable):
            await api.get(CONFIG_MAP, "shop", "orders")
        async with asyncio.timeout(5):
            await api.get(CONFIG_MAP, "shop", "orders")

    run(Overloaded("3600"), story)
