"""
Tokens of the application's token provider, in a file that the consumer's own sidecar follows: the object is of this process.

`sidecar_process` writes the first token before it starts the sidecar, and then runs `follow` until it closes. The file is in the
folder of the sidecar's socket, which other users cannot open.
"""

import asyncio
import logging
import os
from pathlib import Path

from rota import errors
from rota.clocks import system_clocks
from rota_service.oauth_sources import TokenSource
from rota_service.oauth_tokens import RENEWAL_PART, RETRY_S, NoToken, Token

log = logging.getLogger("rota.sidecar")
MODE = 0o600


class TokenWriter:
    """Invariant: the file has one whole token at every moment after `begin`."""

    def __init__(self, source: TokenSource, file: Path) -> None:
        self._source = source
        self._file = file
        self._clocks = system_clocks()

    async def begin(self) -> Token:
        """Write the first token. Raises AuthenticationFailed."""
        try:
            return await asyncio.to_thread(self._write)
        except NoToken as failure:
            raise errors.AuthenticationFailed(
                f"there is no token for the login to Kafka: {failure}"
            ) from failure

    async def follow(self, token: Token) -> None:
        """Replace each token at 80 % of its life, without end; retry after a failure."""
        is_failing = False
        while True:
            await asyncio.sleep(RETRY_S if is_failing else RENEWAL_PART * token.lifetime_s)
            try:
                token, is_failing = await asyncio.to_thread(self._write), False
            except NoToken as failure:
                if not is_failing:
                    log.warning("the token for Kafka cannot be renewed: %s", failure)
                is_failing = True

    def _write(self) -> Token:
        """Ask the application's object and replace the file; runs in a thread, as the object may block. Raises NoToken."""
        token = self._source.obtain(self._clocks.wall_ms() / 1000)
        fresh = self._file.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "w") as file:
            file.write(token.value)
        fresh.replace(self._file)
        return token
