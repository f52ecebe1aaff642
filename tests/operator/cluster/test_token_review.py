"""Sidecars are authenticated by the API server; while it is away, known ones go on and new ones wait."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota_operator.cluster import token_review
from rota_operator.cluster.errors import Unavailable
from rota_operator.cluster.token_review import (
    TOKEN_LENGTH_MAX,
    PodGroup,
    ReviewClocks,
    ReviewPorts,
    TokenReviewer,
)
from rota_operator.cluster.tokens import CACHE_S, CACHE_S_MIN, POD_NAME, POD_UID, Pod
from rota_operator.fleet.authentication import AuthenticationUnavailable, Unauthenticated
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.reconcile.observed import Object

WALL_S = 1_700_000_000.0
LIFETIME_S = 3_600
WITHIN_S = 10


def token_of(pod: str, expires_s: float = WALL_S + LIFETIME_S) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_s, "pod": pod}).encode()).decode()
    return f"header.{claims.rstrip('=')}.signature"


class Cluster:
    """Stands for the API server: pods and their groups, reviews of their tokens, and failures."""

    def __init__(self) -> None:
        self.pods = {token_of("orders-0"): "orders-0"}
        self.groups: dict[str, PodGroup] = {"orders-0": PodGroup("shop/orders", "shop.orders")}
        self.now_s = 500.0
        self.reviews: list[tuple[str, tuple[str, ...]]] = []
        self.under_way = 0
        self.most_under_way = 0
        self.review_begun = asyncio.Condition()
        # Set: the API server answers.
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_down = False
        self.reviewer = TokenReviewer(
            ReviewPorts(self._review, self._group_of),
            ReviewClocks(lambda: self.now_s, lambda: WALL_S + self.now_s - 500.0),
        )

    async def _review(self, token: str, audiences: tuple[str, ...]) -> Object:
        self.reviews.append((token, audiences))
        if self.is_down:
            raise Unavailable("the API server cannot be reached")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        async with self.review_begun:
            self.review_begun.notify_all()
        try:
            await self.answers.wait()
        finally:
            self.under_way -= 1
        pod = self.pods.get(token)
        if pod is None:
            return {"authenticated": False, "error": "invalid bearer token"}
        extra = {POD_NAME: [pod], POD_UID: [f"uid of {pod}"]}
        user = {"username": "system:serviceaccount:shop:default", "extra": extra}
        return {"authenticated": True, "audiences": ["rota"], "user": user}

    async def _group_of(self, pod: Pod) -> PodGroup | None:
        return self.groups.get(pod.name)


def run(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WITHIN_S):
            await story(Cluster())

    asyncio.run(main())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of a tenth of a second."""
    monkeypatch.setattr(token_review, "WAIT_S", 0.1)
    monkeypatch.setattr(token_review, "RETRY_S", 0.01)


TOKEN = token_of("orders-0")


def test_a_sidecar_is_the_pod_of_its_token_in_the_group_of_the_pod() -> None:
    async def story(cluster: Cluster) -> None:
        assert await cluster.reviewer.authenticate(TOKEN) == Principal(
            SidecarRef("shop", "orders-0"), "shop.orders", "uid of orders-0", "shop/orders", CACHE_S
        )
        assert cluster.reviews == [(TOKEN, ("rota",))]

    run(story)


def test_an_answer_is_remembered_for_a_while() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.reviewer.authenticate(TOKEN)
        cluster.now_s += CACHE_S - 10
        assert (await cluster.reviewer.authenticate(TOKEN)).valid_for_s == 10
        assert len(cluster.reviews) == 1
        cluster.now_s += 10
        assert (await cluster.reviewer.authenticate(TOKEN)).valid_for_s == CACHE_S
        assert len(cluster.reviews) == 2

    run(story)


def test_an_answer_is_not_remembered_after_the_expiry_of_the_token() -> None:
    async def story(cluster: Cluster) -> None:
        token = token_of("orders-0", WALL_S + 12)
        cluster.pods[token] = "orders-0"
        assert (await cluster.reviewer.authenticate(token)).valid_for_s == 12
        cluster.now_s += 12
        del cluster.pods[token]
        with pytest.raises(Unauthenticated, match="invalid bearer token"):
            await cluster.reviewer.authenticate(token)

    run(story)


def test_a_clock_that_is_ahead_of_the_api_server_asks_more_often() -> None:
    async def story(cluster: Cluster) -> None:
        token = token_of("orders-0", WALL_S - 100)
        cluster.pods[token] = "orders-0"
        assert (await cluster.reviewer.authenticate(token)).valid_for_s == CACHE_S_MIN
        await cluster.reviewer.authenticate(token)
        assert len(cluster.reviews) == 2

    run(story)


@pytest.mark.parametrize("token", ["nonsense", token_of("orders-7"), "x" * (TOKEN_LENGTH_MAX + 1)])
def test_a_token_that_is_rejected_is_not_named(token: str) -> None:
    async def story(cluster: Cluster) -> None:
        with pytest.raises(Unauthenticated) as refused:
            await cluster.reviewer.authenticate(token)
        assert token not in str(refused.value)
        assert len(cluster.reviews) == (len(token) <= TOKEN_LENGTH_MAX)

    run(story)


def test_a_pod_without_a_group_is_refused_by_name() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.groups.clear()
        with pytest.raises(Unauthenticated, match="pod orders-0 of namespace shop does not belong"):
            await cluster.reviewer.authenticate(TOKEN)

    run(story)


def test_a_deleted_pod_is_refused_when_the_answer_has_expired(impatient: None) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.reviewer.authenticate(TOKEN)
        cluster.pods.clear()
        cluster.now_s += CACHE_S
        with pytest.raises(Unauthenticated):
            await cluster.reviewer.authenticate(TOKEN)
        cluster.is_down = True
        with pytest.raises(AuthenticationUnavailable):
            await cluster.reviewer.authenticate(TOKEN)

    run(story)


def test_while_the_api_server_is_away_known_sidecars_go_on_until_their_token_expires(impatient: None) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.reviewer.authenticate(TOKEN)
        cluster.is_down = True
        cluster.now_s += LIFETIME_S - 1
        again = await cluster.reviewer.authenticate(TOKEN)
        assert (again.sidecar.pod, again.valid_for_s) == ("orders-0", CACHE_S_MIN)
        cluster.now_s += 1
        with pytest.raises(AuthenticationUnavailable):
            await cluster.reviewer.authenticate(TOKEN)

    run(story)


def test_while_the_api_server_hangs_known_sidecars_go_on(impatient: None) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.reviewer.authenticate(TOKEN)
        cluster.answers.clear()
        cluster.now_s += CACHE_S
        assert (await cluster.reviewer.authenticate(TOKEN)).valid_for_s == CACHE_S_MIN

    run(story)


def test_while_the_api_server_is_away_new_sidecars_wait_up_to_a_deadline(impatient: None) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.is_down = True
        with pytest.raises(AuthenticationUnavailable, match="in time; retry"):
            await cluster.reviewer.authenticate(TOKEN)
        assert len(cluster.reviews) > 1

    run(story)


def test_a_new_sidecar_that_waits_is_let_in_when_the_api_server_is_back() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.answers.clear()
        waiting = asyncio.ensure_future(cluster.reviewer.authenticate(TOKEN))
        await asyncio.sleep(0)
        assert not waiting.done()
        cluster.answers.set()
        assert (await waiting).sidecar.pod == "orders-0"

    run(story)


def test_streams_with_one_token_share_its_review() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.answers.clear()
        waiting = [asyncio.ensure_future(cluster.reviewer.authenticate(TOKEN)) for _ in range(50)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        cluster.answers.set()
        found = await asyncio.gather(*waiting[1:])
        assert {each.sidecar.pod for each in found} == {"orders-0"}
        assert len(cluster.reviews) == 1

    run(story)


def test_reviews_at_a_time_are_bounded() -> None:
    async def story(cluster: Cluster) -> None:
        tokens = [token_of(f"orders-{number}") for number in range(100)]
        for number, token in enumerate(tokens):
            cluster.pods[token] = f"orders-{number}"
            cluster.groups[f"orders-{number}"] = PodGroup("shop/orders", "shop.orders")
        cluster.answers.clear()
        waiting = [asyncio.ensure_future(cluster.reviewer.authenticate(token)) for token in tokens]
        async with cluster.review_begun:
            await cluster.review_begun.wait_for(lambda: cluster.under_way == token_review.REVIEWS_MAX)
        cluster.answers.set()
        await asyncio.gather(*waiting)
        assert cluster.most_under_way == token_review.REVIEWS_MAX

    run(story)


def test_streams_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.answers.clear()
        waiting = [asyncio.ensure_future(cluster.reviewer.authenticate(f"token {n}")) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(AuthenticationUnavailable, match="wait for the API server"):
            await cluster.reviewer.authenticate("one more")
        cluster.answers.set()
        ends: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, Unauthenticated) for each in ends)

    monkeypatch.setattr(token_review, "WAITING_MAX", 3)
    run(story)
