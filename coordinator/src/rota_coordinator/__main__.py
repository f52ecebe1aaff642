"""Entry point of `python -m rota_coordinator`. Started by `rota`, by container images and by tests."""

import argparse
import asyncio
import sys
from pathlib import Path

from rota_coordinator.options import option_error, parse, secret_in, slots_error
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.store.port import StoreError
from rota_service.addresses import BindError


def main() -> None:
    """Start the coordinator, or exit with an error message."""
    options = parse(sys.argv[1:])
    if options.print_schema:
        from rota_coordinator.store.postgres_schema import script

        if error := slots_error(options):
            sys.exit(f"rota-coordinator: {error}")
        print(script(options.print_schema, options.slots))
        return
    error = secret_in(sys.argv[1:]) or option_error(options)
    if error:
        sys.exit(f"rota-coordinator: {error}")
    try:
        run(options)
    except (BindError, SecurityError, StoreError) as error:
        sys.exit(f"rota-coordinator: {error}")
    except RuntimeError as error:
        # gRPC reports a port in use only by this word.
        if "bind" not in str(error).lower():
            raise
        sys.exit(
            f"rota-coordinator: {options.listen}: address already in use or not available; stop the other process, or choose another address with --listen"
        )


def run(options: argparse.Namespace) -> None:
    """Serve, or back up or prepare the store."""
    if options.backup:
        from rota_coordinator.store.sqlite_backup import back_up

        path, target = Path(options.store.partition(":")[2]), Path(options.backup)
        print(f"copied {path} to {target} ({back_up(path, target)} bytes)")
        return
    # Imported late, so that --version and invalid flags are answered without loading gRPC.
    from rota_coordinator.program import prepare, serve

    if options.restored:
        count = asyncio.run(prepare(options))
        print(f"{count} groups begin a new incarnation; their members rejoin when a coordinator starts")
    else:
        asyncio.run(serve(options))


if __name__ == "__main__":
    main()
