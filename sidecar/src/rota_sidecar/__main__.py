"""
`python -m rota_sidecar`: the sidecar as a program, and `python -m rota_sidecar drain`, which drains one that runs.

Started by `rota`, by container images and by tests.
"""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rota_sidecar.config import parse
from rota_sidecar.config.validation import problem, secret_in

if TYPE_CHECKING:
    from rota_sidecar.wiring import Strategies

# gRPC would log to stderr between the sidecar's lines, which report the same failures.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

ENDING_S = 2


def main() -> None:
    """Run the sidecar; exit with 0 when it ends as requested, else with 1 and a message."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["drain"]:
        from rota_sidecar.process import drain_command

        failed = drain_command.main(arguments[1:])
        sys.exit(f"rota-sidecar: {failed}" if failed else 0)
    options, strategies = configured(arguments)
    from rota_service.addresses import BindError
    from rota_sidecar.membership.state_file import StateFileError

    try:
        failed = asyncio.run(serve(options, strategies, arguments))
    except (StateFileError, BindError) as error:
        failed = str(error)
    if failed:
        sys.exit(f"rota-sidecar: {failed}")


def configured(arguments: Sequence[str]) -> tuple[argparse.Namespace, "Strategies"]:
    """Read and validate the configuration; exit with 1 and a message when it is wrong."""
    wrong = secret_in(arguments)
    if wrong:
        sys.exit(f"rota-sidecar: {wrong}")
    options = read(arguments)
    # Imported late: --version and a wrong flag answer before gRPC is loaded.
    from rota_sidecar.membership.strategies import StrategyError, known

    try:
        # What is beyond the bounds is refused below, with everything else.
        strategies = known(max(0, min(options.max_moved_partitions_percent, 100)))
    except StrategyError as error:
        sys.exit(f"rota-sidecar: {error}")
    wrong = problem(options, strategies)
    if wrong:
        sys.exit(f"rota-sidecar: {wrong}")
    return options, strategies


def read(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line, and the file that it names."""
    options = parse(arguments)
    if not options.settings:
        return options
    from rota_sidecar.config.settings import SettingsError, read

    try:
        return parse(arguments, read(Path(options.settings)))
    except SettingsError as error:
        sys.exit(f"rota-sidecar: {error}")


async def serve(options: argparse.Namespace, strategies: "Strategies", arguments: Sequence[str]) -> str:
    """Run the sidecar until it ends; return why it failed, or an empty string. Raises StateFileError, BindError."""
    from rota_service.event_log import open_event_log
    from rota_sidecar.process.sidecar import serve_application

    event_log = open_event_log("rota-sidecar", options.log_format)
    failed = "it broke"
    try:
        failed = await serve_application(options, strategies, arguments, event_log)
    finally:
        insist_on_ending(1 if failed else 0)
    return failed


def insist_on_ending(code: int) -> None:
    """Exit within 2 s even if a thread still runs: an installed strategy may never return from `assign`."""
    timer = threading.Timer(ENDING_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
