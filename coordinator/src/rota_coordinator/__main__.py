"""`python -m rota_coordinator`: the coordinator as a program. Started by `rota`, by container images and by tests."""

import argparse
import asyncio
import ipaddress
import os
import signal
import sys
import uuid
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rota_coordinator.group.config import MINUTE_MS, GroupConfig
from rota_coordinator.store.port import StoreError

if TYPE_CHECKING:
    from rota_coordinator.service import Service

GRACE_S = 5
# The flags of the groups, named as Kafka's settings where it has them.
GROUP_FLAGS = {
    "session_timeout_ms_min": (
        "group-min-session-timeout-ms",
        "the shortest session that a member may ask for",
    ),
    "session_timeout_ms_max": (
        "group-max-session-timeout-ms",
        "the longest session that a member may ask for",
    ),
    "initial_rebalance_delay_ms": (
        "group-initial-rebalance-delay-ms",
        "how long an empty group waits for more members after the first",
    ),
    "rebalance_coalesce_ms": (
        "rebalance-coalesce-ms",
        "how long a rebalance stays open at least, and a silent member may still come back",
    ),
    "members_max": ("group-max-size", "the most members of a group"),
    "new_member_join_timeout_ms": (
        "new-member-join-timeout-ms",
        "how long a new member waits for its first round",
    ),
    "offset_metadata_length_max": (
        "offset-metadata-max-length",
        "the longest text beside a committed offset",
    ),
    "offsets_retention_ms": ("offsets-retention-ms", "how long offsets of a group without members are kept"),
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; a variable ROTA_<FLAG> is its flag's default."""
    parser = argparse.ArgumentParser(
        prog="rota-coordinator",
        description="The group coordinator. Each flag can be given as a variable too: ROTA_STORE for --store.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-coordinator')}")
    parser.add_argument("--store", default="sqlite:.rota/coordinator.db", help="sqlite:PATH")
    parser.add_argument(
        "--listen", default="127.0.0.1:7070", metavar="HOST:PORT", help="port 0: any free one"
    )
    parser.add_argument(
        "--advertise", default="", metavar="HOST:PORT", help="what members dial, if not --listen"
    )
    parser.add_argument("--insecure", action="store_true", help="listen beyond loopback, without TLS")
    for field in fields(GroupConfig):
        flag, meaning = GROUP_FLAGS[field.name]
        parser.add_argument(
            f"--{flag}", dest=field.name, type=int, default=field.default, metavar="N", help=meaning
        )
    parser.add_argument(
        "--offsets-check-interval-ms",
        type=int,
        default=10 * MINUTE_MS,
        metavar="N",
        help="how often to look for offsets to expire",
    )
    for action in parser._actions:  # argparse has no public list of its flags
        variable = "ROTA_" + action.option_strings[-1].removeprefix("--").replace("-", "_").upper()
        if action.dest not in ("help", "version", "insecure") and variable in os.environ:
            action.default = os.environ[variable]
    return parser.parse_args(arguments)


def problem(options: argparse.Namespace) -> str:
    """What is wrong with the options, in one sentence; empty when nothing is."""
    if not options.store.startswith("sqlite:") or options.store == "sqlite:":
        return f"--store {options.store}: this version knows sqlite:PATH only"
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdecimal():
        return f"--listen {options.listen}: give HOST:PORT, for example 127.0.0.1:7070"
    if not options.insecure and not is_loopback(host):
        return f"--listen {options.listen} is not loopback and TLS is not there yet; add --insecure if you mean it"
    return ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
