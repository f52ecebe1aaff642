"""Answers of the laptop's page to whatever a client sends: sentences as JSON, also where the request is not valid HTTP."""

import asyncio
from collections.abc import Mapping

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from typing_extensions import override

SHOWN_LENGTH_MAX = 100


def sentence(status: int, text: str) -> web.Response:
    """An answer of one line."""
    return web.json_response({"error": text} if status >= 400 else {"said": text}, status=status)


class Connection(RequestHandler):
    """One client's connection. A request that the parser refuses never reaches the page's handlers; it is answered here."""

    __slots__ = ("_headers",)

    def __init__(self, server: web.Server, headers: Mapping[str, str]) -> None:
        super().__init__(server, loop=asyncio.get_running_loop())
        self._headers = headers

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        # The parser shows the bytes too, on lines of their own; nothing of it goes into the log, for strangers would fill that.
        what = (message or "malformed").split("\n", 1)[0].rstrip(":.")[:SHOWN_LENGTH_MAX]
        answer = sentence(status, f"the request is not valid HTTP ({what}): correct it")
        answer.headers.update(self._headers)
        answer.force_close()
        return answer
