"""Sidecars are authenticated by the API server; while it is away, known ones go on and new ones wait."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from rota_service import token_review
from rota_service.pod_tokens import (
    CACHE_S,
    CACHE_S_MIN,
    POD_NAME,
    POD_UID,
    REJECTED_S,
    InvalidToken,
    Pod,
)
from rota_service.token_review import (
    TOKEN_LENGTH_MAX,
    Authenticated,
    AuthenticationUnavailable,
    ReviewClocks,
    ReviewPorts,
    ReviewUnavailable,
    TokenReviewer,
    Unauthenticated,
)

WALL_S = 1_700_000_000.0
LIFETIME_S = 3_600
WITHIN_S = 60


def token_of(pod: str, expires_s: float = WALL_S + LIFETIME_S) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_s, "pod": pod}).encode()).decode()
    return f"header.{claims.rstrip('=')}.signature"


class Cluster:
    """Stands for the API server: pods and their groups, reviews of their tokens, and failures."""

    def __init__(self) -> None:
        self.pods = {token_of("orders-0"): "orders-0"}
        # Pods that the server accepts; None: all.
        self.accepted: set[str] | None = None
        self.now_s = 500.0
        self.reviews: list[tuple[str, tuple[str, ...]]] = []
        self.under_way = 0
        self.most_under_way = 0
        self.review_begun = asyncio.Condition()
        # Set: the API server answers.
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_down = False
        self.reviewer: TokenReviewer[Pod] = TokenReviewer(
            ReviewPorts(self._review, self._identify),
            ReviewClocks(lambda: self.now_s, lambda: WALL_S + self.now_s - 500.0),
        )

    async def _review(self, token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        self.reviews.append((token, audiences))
        if self.is_down:
            raise ReviewUnavailable("the API server cannot be reached")
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

    async def _identify(self, pod: Pod) -> Pod:
        if self.accepted is not None and pod.name not in self.accepted:
            raise InvalidToken(f"pod {pod.name} is not accepted")
        return pod


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


def test_a_token_is_its_pods() -> None:
    async def story(cluster: Cluster) -> None:
        assert await cluster.reviewer.authenticate(TOKEN) == Authenticated(
            Pod("shop", "orders-0", "uid of orders-0", "default"), CACHE_S
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


def test_a_rejected_token_is_reviewed_again_after_a_moment() -> None:
    async def story(cluster: Cluster) -> None:
        token = token_of("orders-7")
        for _ in range(3):
            with pytest.raises(Unauthenticated, match="invalid bearer token"):
                await cluster.reviewer.authenticate(token)
        assert len(cluster.reviews) == 1
        cluster.pods[token] = "orders-7"
        cluster.now_s += REJECTED_S
        assert (await cluster.reviewer.authenticate(token)).identity.name == "orders-7"

    run(story)


@pytest.mark.parametrize("token", ["nonsense", token_of("orders-7"), "x" * (TOKEN_LENGTH_MAX + 1)])
def test_a_token_that_is_rejected_is_not_named(token: str) -> None:
    async def story(cluster: Cluster) -> None:
        with pytest.raises(Unauthenticated) as refused:
            await cluster.reviewer.authenticate(token)
        assert token not in str(refused.value)
        assert len(cluster.reviews) == (len(token) <= TOKEN_LENGTH_MAX)

    run(story)


def test_a_pod_that_the_server_does_not_accept_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.accepted = set()
        with pytest.raises(Unauthenticated, match="pod orders-0 is not accepted"):
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
        cluster.now_s += REJECTED_S
        with pytest.raises(AuthenticationUnavailable):
            await cluster.reviewer.authenticate(TOKEN)

    run(story)


def test_while_the_api_server_is_away_known_sidecars_go_on_until_their_token_expires(impatient: None) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.reviewer.authenticate(TOKEN)
        cluster.is_down = True
        cluster.now_s += LIFETIME_S - 1
        again = await cluster.reviewer.authenticate(TOKEN)
        assert (again.identity.name, again.valid_for_s) == ("orders-0", CACHE_S_MIN)
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


def test_calls_of_a_known_pod_do_not_wait_for_a_review_that_is_under_way() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.reviewer.authenticate(TOKEN)
        cluster.answers.clear()
        cluster.now_s += CACHE_S
        first = asyncio.ensure_future(cluster.reviewer.authenticate(TOKEN))
        await asyncio.sleep(0)
        for _ in range(100):
            assert (await cluster.reviewer.authenticate(TOKEN)).identity.name == "orders-0"
        assert not first.done()
        assert len(cluster.reviews) <= 2
        await first
        # The answer comes when no call waits for it: the pod is deleted.
        cluster.pods.clear()
        cluster.answers.set()
        with pytest.raises(Unauthenticated):
            await until_refused(cluster)

    run(story)


async def until_refused(cluster: Cluster) -> None:
    while True:
        await cluster.reviewer.authenticate(TOKEN)
        await asyncio.sleep(0)


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
        assert (await waiting).identity.name == "orders-0"

    run(story)


def test_streams_with_one_token_share_its_review() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.answers.clear()
        waiting = [asyncio.ensure_future(cluster.reviewer.authenticate(TOKEN)) for _ in range(50)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        cluster.answers.set()
        found = await asyncio.gather(*waiting[1:])
        assert {each.identity.name for each in found} == {"orders-0"}
        assert len(cluster.reviews) == 1

    run(story)


def test_reviews_at_a_time_are_bounded() -> None:
    async def story(cluster: Cluster) -> None:
        tokens = [token_of(f"orders-{number}") for number in range(100)]
        for number, token in enumerate(tokens):
            cluster.pods[token] = f"orders-{number}"
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


def test_one_address_does_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.answers.clear()
        flood = [asyncio.ensure_future(cluster.reviewer.authenticate(f"token {n}", "a")) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(AuthenticationUnavailable, match="calls of this address wait"):
            await cluster.reviewer.authenticate("one more", "a")
        other = asyncio.ensure_future(cluster.reviewer.authenticate(TOKEN, "b"))
        await asyncio.sleep(0)
        cluster.answers.set()
        assert (await other).identity.name == "orders-0"
        await asyncio.gather(*flood, return_exceptions=True)
        with pytest.raises(Unauthenticated):
            await cluster.reviewer.authenticate("one more", "a")

    monkeypatch.setattr(token_review, "WAITING_OF_ADDRESS_MAX", 3)
    run(story)
