"""`python -m rota_coordinator`: the coordinator as a program. Started by `rota`, by container images and by tests."""

import argparse
import asyncio
import signal
import sys
import uuid
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from rota_coordinator.group.config import GroupConfig
from rota_coordinator.options import parse, problem
from rota_coordinator.store.port import StoreError

if TYPE_CHECKING:
    from rota_coordinator.service import Service

GRACE_S = 5


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    # Imported late: --version and a wrong flag answer before gRPC is loaded.
    from rota_coordinator.server import make_server
    from rota_coordinator.service import Service, steady_clock_ms
    from rota_coordinator.sessions import Sessions
    from rota_coordinator.slot import Shell
    from rota_coordinator.store.sqlite import open_store
    from rota_coordinator.watch import Watchers

    store = open_store(Path(options.store.removeprefix("sqlite:")))
    sessions = Sessions()
    watchers = Watchers()
    config = GroupConfig(**{field.name: getattr(options, field.name) for field in fields(GroupConfig)})
    shell = Shell(
        store,
        config,
        now_ms=steady_clock_ms(),
        fresh=lambda: str(uuid.uuid4()),
        notify=sessions.notify,
        changed=watchers.changed,
        report=lambda text: print(f"rota-coordinator: {text}", file=sys.stderr, flush=True),
    )
    service = Service(shell, options.advertise or options.listen)
    server = make_server(service, sessions, watchers)
    host = options.listen.rpartition(":")[0]
    port = server.add_insecure_port(options.listen)
    if not options.advertise:
        service.address = f"{host}:{port}"
    await server.start()
    await service.start()
    print(f"rota-coordinator: listening on {host}:{port}", file=sys.stderr, flush=True)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    expiry = asyncio.ensure_future(expire_offsets(service, options.offsets_check_interval_ms / 1000))
    await stopped.wait()
    expiry.cancel()
    service.stop()
    await server.stop(GRACE_S)
    await store.close()


async def expire_offsets(service: "Service", every_s: float) -> None:
    """Look for offsets that nobody needs any more, now and then."""
    while True:
        await asyncio.sleep(every_s)
        service.expire_offsets()


def main() -> None:
    """Start, or say in one sentence why not."""
    options = parse(sys.argv[1:])
    wrong = problem(options)
    if wrong:
        sys.exit(f"rota-coordinator: {wrong}")
    try:
        asyncio.run(serve(options))
    except StoreError as error:
        sys.exit(f"rota-coordinator: {error}")
    except RuntimeError as error:
        # gRPC's only word for a port that is taken.
        if "bind" not in str(error).lower():
            raise
        sys.exit(
            f"rota-coordinator: {options.listen} cannot be listened on; is another coordinator running there?"
        )


if __name__ == "__main__":
    main()
