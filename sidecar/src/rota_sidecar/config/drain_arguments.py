"""
Read the command line of `rota-sidecar drain`. Called by `process.drain_command`.

It imports nothing but argparse: the end of a pod waits for the command.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

VARIABLE = "ROTA_DRAIN_SOCKET"


class DrainArguments(NamedTuple):
    """The drain to request. The sidecar's own rules for requests decide what `for_ms` and `then` may be."""

    drain_socket: str
    # None: the sidecar's drain time and 15 s.
    for_ms: str | None
    then: str


def parse_drain_arguments(arguments: Sequence[str], environ: Mapping[str, str]) -> DrainArguments:
    """Return the arguments; exit after the help and with errors of usage."""
    parser = argparse.ArgumentParser(
        prog="rota-sidecar drain",
        description="Drain the sidecar of this container: it delivers no more records and waits for verdicts. "
        "Exits with 0 when no record is in flight, and with 1 when the drain time is over.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--drain-socket",
        default=environ.get(VARIABLE, ""),
        metavar="FILE",
        help=f"the sidecar's --drain-socket (default: the variable {VARIABLE})",
    )
    parser.add_argument(
        "--for-ms",
        metavar="N",
        help="how long the drain lasts unless the process exits before (default: the sidecar's drain time and 15 s)",
    )
    parser.add_argument(
        "--then",
        default="resume",
        metavar="{resume,leave}",
        help="what follows: resume, or leave the group and exit (default: resume)",
    )
    given = parser.parse_args(arguments)
    return DrainArguments(given.drain_socket, given.for_ms, given.then)
