"""Asks a server of this machine for a page, never through a proxy that the environment names."""

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
    try:
        with _direct.open(f"http://{address}{path}", timeout=PATIENCE_S) as reply:
            return Reply(reply.status, reply.read().decode())
    except urllib.error.HTTPError as refused:
        with refused:
            return Reply(refused.code, refused.read().decode())
