"""
Reads requests of the drain socket: POST /drain?for_ms=N&then=resume|leave. Used by `sidecar` and `drain_command`. Pure.

A request states how long the drain lasts unless the process ends before, and what follows then.
"""

from typing import NamedTuple
from urllib.parse import parse_qsl

from rota_sidecar.lifecycle.drain_orders import OnExpiry

PATH = "/drain"
# Beyond the drain time: for the application to exit, and for the sidecar to get its SIGTERM.
AFTER_DRAIN_MS = 15_000
FOR_MS_MAX = 24 * 3_600_000


class DrainRequest(NamedTuple):
    """A drain of `for_ms` and what follows; None: the drain time and AFTER_DRAIN_MS."""

    for_ms: int | None
    then: OnExpiry


class WrongRequest(Exception):
    """The query of a request is refused, in one sentence."""


def request_of(query: str) -> DrainRequest:
    """
    Read `for_ms` and `then`, both optional. Raises WrongRequest.

    >>> request_of("for_ms=60000&then=leave")
    DrainRequest(for_ms=60000, then=<OnExpiry.LEAVE: 'leave'>)
    """
    found = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=10))
    unknown = sorted(found.keys() - {"for_ms", "then"})
    if unknown:
        raise WrongRequest(f"unknown parameter {unknown[0]}: expected for_ms and then")
    for_ms, then = found.get("for_ms"), found.get("then", OnExpiry.RESUME.value)
    if then not in {each.value for each in OnExpiry}:
        raise WrongRequest(f"then={then}: expected resume or leave")
    if for_ms is None:
        return DrainRequest(None, OnExpiry(then))
    if not (for_ms.isascii() and for_ms.isdecimal() and len(for_ms) <= len(str(FOR_MS_MAX))) or not (
        1 <= int(for_ms) <= FOR_MS_MAX
    ):
        raise WrongRequest(f"for_ms={for_ms}: expected milliseconds, 1 to {FOR_MS_MAX}")
    return DrainRequest(int(for_ms), OnExpiry(then))
