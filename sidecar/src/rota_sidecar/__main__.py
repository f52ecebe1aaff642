"""`python -m rota_sidecar`: the sidecar as a program. Started by `rota`, by container images and by tests."""

import asyncio
import os
import sys

from rota_sidecar.options import parse, problem, secret_in

# gRPC's own lines are no sentences, and would stand among ours; what they say is in ours too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main() -> None:
    """Start, or say in one sentence why not; the same if the member ends without having been asked to."""
    arguments = sys.argv[1:]
    wrong = secret_in(arguments)
    if wrong:
        sys.exit(f"rota-sidecar: {wrong}")
    options = parse(arguments)
    # Imported late: --version and a wrong flag answer before gRPC is loaded.
    from rota_sidecar.strategies import StrategyError, known

    try:
        # What is beyond the bounds is refused below, with everything else.
        strategies = known(max(0, min(options.max_moved_partitions_percent, 100)))
    except StrategyError as error:
        sys.exit(f"rota-sidecar: {error}")
    wrong = problem(options, strategies)
    if wrong:
        sys.exit(f"rota-sidecar: {wrong}")
    from rota_sidecar.program import serve
    from rota_sidecar.state_file import StateFileError

    try:
        failed = asyncio.run(serve(options, strategies))
    except StateFileError as error:
        failed = str(error)
    if failed:
        sys.exit(f"rota-sidecar: {failed}")


if __name__ == "__main__":
    main()
