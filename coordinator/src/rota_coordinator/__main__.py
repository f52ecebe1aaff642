"""`python -m rota_coordinator`: the coordinator as a program. Started by `rota`, by container images and by tests."""

import asyncio
import sys

from rota_coordinator.options import option_error, parse, secret_in
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.store.port import StoreError
from rota_service.addresses import BindError


def main() -> None:
    """Start, or say in one sentence why not."""
    options = parse(sys.argv[1:])
    if options.print_schema:
        from rota_coordinator.store.postgres_schema import script

        print(script(options.print_schema))
        return
    error = secret_in(sys.argv[1:]) or option_error(options)
    if error:
        sys.exit(f"rota-coordinator: {error}")
    # Imported late: --version and a wrong flag answer before gRPC is loaded.
    from rota_coordinator.program import serve

    try:
        asyncio.run(serve(options))
    except (BindError, SecurityError, StoreError) as error:
        sys.exit(f"rota-coordinator: {error}")
    except RuntimeError as error:
        # gRPC's only word for a port that is taken.
        if "bind" not in str(error).lower():
            raise
        sys.exit(
            f"rota-coordinator: {options.listen}: address already in use or not available; stop the other process, or choose another address with --listen"
        )


if __name__ == "__main__":
    main()
