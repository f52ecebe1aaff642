"""Asks a server of this machine for a page, never through a proxy that the environment names."""

import json
import urllib.error
import urllib.request
from typing import NamedTuple

PATIENCE_S = 10
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Reply(NamedTuple):
    """An answer, whatever its status."""

    status: int
    page: str


def get(address: str, path: str) -> Reply:
    """GET, on HOST:PORT."""
    return _asked(urllib.request.Request(f"http://{address}{path}"))


def post(address: str, path: str, body: object) -> Reply:
    """POST, with a body of JSON."""
    headers = {"Content-Type": "application/json"}
    return _asked(urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(), headers))


def _asked(request: urllib.request.Request) -> Reply:
    try:
        with _direct.open(request, timeout=PATIENCE_S) as reply:
            return Reply(reply.status, reply.read().decode())
    except urllib.error.HTTPError as refused:
        with refused:
            return Reply(refused.code, refused.read().decode())
