"""Tokens of an application's provider in the file that its sidecar follows."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from rota import errors
from rota.consumer import token_file as module
from rota.consumer.token_file import TokenWriter
from rota_service.oauth_sources import TokenSource
from rota_service.oauth_tokens import NoToken, Token

WITHIN_S = 60


class Source(TokenSource):
    """Counts its tokens, which live for a moment; fails while `fails`."""

    is_local = True

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    @override
    def obtain(self, wall_s: float) -> Token:
        self.count += 1
        if self.fails:
            raise NoToken("the token provider raised ValueError; see its own log", may_heal=True)
        return Token(f"token-{self.count}", "orders", 0.05)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_each_token_replaces_the_one_before_it_and_is_private(tmp_path: Path) -> None:
    file, source = tmp_path / "token", Source()

    async def follow() -> None:
        writer = TokenWriter(source, file)
        token = await writer.begin()
        assert file.read_text() == token.value == "token-1"
        assert file.stat().st_mode & 0o777 == 0o600
        following = asyncio.create_task(writer.follow(token))
        await until(lambda: source.count >= 3)
        assert file.read_text().startswith("token-")
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(follow())


def test_a_failure_is_said_once_and_the_last_token_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    file, source = tmp_path / "token", Source()

    async def follow() -> None:
        writer = TokenWriter(source, file)
        following = asyncio.create_task(writer.follow(await writer.begin()))
        source.fails = True
        await until(lambda: source.count >= 4)
        assert file.read_text() == "token-1"
        source.fails = False
        await until(lambda: file.read_text() != "token-1")
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(follow())
    assert (
        caplog.text.count("the token for Kafka cannot be renewed: the token provider raised ValueError") == 1
    )


def test_without_a_first_token_the_sidecar_is_not_started(tmp_path: Path) -> None:
    source = Source()
    source.fails = True
    with pytest.raises(
        errors.AuthenticationFailed, match="there is no token for the login to Kafka: the token provider"
    ):
        asyncio.run(TokenWriter(source, tmp_path / "token").begin())
    assert not (tmp_path / "token").exists()
