"""
`python -m rota_sidecar`: the sidecar as a program, and `python -m rota_sidecar drain`, which drains one that runs.

Started by `rota`, by container images and by tests.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rota_sidecar.config import parse
from rota_sidecar.config.validation import problem, secret_in

# gRPC's own lines are no sentences, and would stand among ours; what they say is in ours too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main() -> None:
    """Start, or say in one sentence why not; the same if the member ends without having been asked to."""
    arguments = sys.argv[1:]
    wrong = secret_in(arguments)
    if wrong:
        sys.exit(f"rota-sidecar: {wrong}")
    if arguments[:1] == ["drain"]:
        from rota_sidecar.process import drain_command

        failed = drain_command.main(arguments[1:])
        sys.exit(f"rota-sidecar: {failed}" if failed else 0)
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
    from rota_sidecar.membership.state_file import StateFileError
    from rota_sidecar.process.http_server import CannotListen
    from rota_sidecar.process.program import serve

    try:
        failed = asyncio.run(serve(options, strategies, arguments))
    except (StateFileError, CannotListen) as error:
        failed = str(error)
    if failed:
        sys.exit(f"rota-sidecar: {failed}")


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


if __name__ == "__main__":
    main()
