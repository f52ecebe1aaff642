"""Reviews of tokens over HTTPS: with the pod's own token and authority as they are now, and with a reason when one fails."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rota_coordinator.security import api_server
from rota_coordinator.security.api_server import Answer, ApiServer, Malformed, read_answer, status_of
from rota_coordinator.security.errors import SecurityError
from rota_service.pod_tokens import AUDIENCE, pod_of
from rota_service.token_review import ReviewUnavailable
from tests.support.token_reviews import TokenReviews, serving_reviews

pytestmark = pytest.mark.process


@pytest.fixture
def reviews(tmp_path: Path) -> Iterator[TokenReviews]:
    with serving_reviews(tmp_path) as server:
        yield server


def client_of(reviews: TokenReviews) -> ApiServer:
    return ApiServer("127.0.0.1", reviews.port, reviews.folder)


def reviewed(client: ApiServer, *tokens: str) -> list[Mapping[str, Any]]:
    async def body() -> list[Mapping[str, Any]]:
        try:
            return [await client.review(token, (AUDIENCE,)) for token in tokens]
        finally:
            await client.close()

    return asyncio.run(body())


def failure(client: ApiServer) -> str:
    with pytest.raises(ReviewUnavailable) as failed:
        reviewed(client, "token")
    return str(failed.value)


@pytest.mark.parametrize("sends_chunks", [False, True])
@pytest.mark.parametrize("closes", [False, True])
def test_a_token_is_reviewed(reviews: TokenReviews, sends_chunks: bool, closes: bool) -> None:
    reviews.sends_chunks, reviews.closes = sends_chunks, closes
    token = reviews.pod("shop", "orders-0")
    first, second = reviewed(client_of(reviews), token, "unknown")
    assert pod_of(first).name == "orders-0"
    assert second == {"error": "invalid bearer token"}


def test_the_own_token_is_read_for_each_review(reviews: TokenReviews) -> None:
    client = client_of(reviews)
    token = reviews.pod("shop", "orders-0")
    reviewed(client, token)
    reviews.own_token = "another"
    assert "rejects the coordinator's own token" in failure(client)
    reviews.rotate_own_token("another")
    assert pod_of(reviewed(client, token)[0]).name == "orders-0"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "bind the ClusterRole system:auth-delegator to its service account"),
        (429, "cannot review tokens now (refused with 429)"),
        (503, "cannot review tokens now (refused with 503)"),
    ],
)
def test_a_refused_review_says_what_to_do(reviews: TokenReviews, status: int, message: str) -> None:
    reviews.refuses_with = status
    assert message in failure(client_of(reviews))


def test_a_server_that_is_away_or_silent_fails_the_review(
    reviews: TokenReviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(reviews)
    monkeypatch.setattr(api_server, "REQUEST_S", 0.2)
    reviews.answers.clear()
    assert "no answer within 0.2 s" in failure(client)
    reviews.stop()
    monkeypatch.setattr(api_server, "REQUEST_S", 10)
    assert "cannot be reached" in failure(client)


def test_a_server_of_another_authority_is_not_asked(reviews: TokenReviews, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with serving_reviews(tmp_path / "other") as other:
        client = client_of(reviews)
        ours = (reviews.folder / "ca.crt").read_bytes()
        (reviews.folder / "ca.crt").write_bytes((other.folder / "ca.crt").read_bytes())
        assert "CERTIFICATE_VERIFY_FAILED" in failure(client)
        # The authority is renewed while the process runs.
        (reviews.folder / "ca.crt").write_bytes(ours)
        assert reviewed(client, "unknown") == [{"error": "invalid bearer token"}]


@pytest.mark.parametrize("file", ["token", "ca.crt"])
def test_a_missing_file_ends_the_start(reviews: TokenReviews, file: str) -> None:
    (reviews.folder / file).unlink()
    with pytest.raises(SecurityError, match=f"{file}.*automountServiceAccountToken"):
        client_of(reviews)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 2 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    ],
)
def test_what_is_no_response_is_refused(said: bytes) -> None:
    async def body() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(said)
        reader.feed_eof()
        with pytest.raises(Malformed):
            await read_answer(reader)

    asyncio.run(body())


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b'{"status": 1}', b"[" * 100_000])
def test_a_body_without_a_status_is_an_answer_of_another_server(body: bytes) -> None:
    with pytest.raises(ReviewUnavailable, match="HTTP status 200"):
        status_of(Answer(200, body, keeps_alive=True))
