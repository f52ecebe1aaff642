"""The sidecar as a process: a bare member, or one that delivers. Called by `__main__`."""

import argparse
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota_sidecar.observability.event_log import set_up

if TYPE_CHECKING:
    from rota_sidecar.wiring import Strategies

ENDING_S = 2


async def serve(options: argparse.Namespace, strategies: "Strategies", arguments: Sequence[str]) -> str:
    """
    Serve until that has ended; why it failed, in one sentence, or nothing. Raises StateFileError, CannotListen.

    What one mode needs the other does not load.
    """
    journal = set_up(options.log_format)
    failed = "it broke"
    try:
        if options.membership_only:
            from rota_sidecar.json_member.process import serve_member

            failed = await serve_member(options, strategies, journal)
        else:
            from rota_sidecar.process.sidecar import serve_application

            failed = await serve_application(options, strategies, arguments, journal)
    finally:
        insist_on_ending(1 if failed else 0)
    return failed


def insist_on_ending(code: int) -> None:
    """Python waits for every thread at its end, and a strategy of somebody else's may never return from one."""
    timer = threading.Timer(ENDING_S, os._exit, (code,))
    timer.daemon = True
    timer.start()
