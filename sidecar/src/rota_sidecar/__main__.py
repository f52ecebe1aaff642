"""
`python -m rota_sidecar`: the sidecar as a program, and `python -m rota_sidecar drain`, which drains one that runs.

Started by `rota`, by container images and by tests.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rota_sidecar.config.loading import ConfigSources
    from rota_sidecar.config.sidecar_config import SidecarConfig
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
    setup = configured(arguments)
    from rota_service.addresses import BindError
    from rota_sidecar.membership.state_file import StateFileError

    try:
        failed = asyncio.run(serve(setup))
    except (StateFileError, BindError) as error:
        failed = str(error)
    if failed:
        sys.exit(f"rota-sidecar: {failed}")


class Setup(NamedTuple):
    """The configuration of a sidecar, its sources, and the strategies that it can offer."""

    sources: "ConfigSources"
    config: "SidecarConfig"
    # All that are installed, by name.
    strategies: "Strategies"


def configured(arguments: Sequence[str]) -> Setup:
    """Read and validate the configuration; exit with 1 and a message when it is refused."""
    from rota_sidecar.config.flag_types import ConfigError
    from rota_sidecar.config.loading import read_sources
    from rota_sidecar.config.validation import assignor_problem

    try:
        sources = read_sources(arguments, os.environ)
        config = sources.config()
    except ConfigError as error:
        sys.exit(f"rota-sidecar: {error}")
    if not config.backend.stores_in_rota:
        from rota_service.partial_packages import load_submodules_only

        # Of kafka-python the messages of the protocol, and not the clients: a hundred modules, and 4 MiB.
        load_submodules_only("kafka")
    # Imported late: --version and a wrong flag answer before gRPC is loaded.
    from rota_sidecar.membership.strategies import StrategyError, known
    from rota_sidecar.wiring import kafka_property_problem

    try:
        strategies = known(config.max_moved_partitions_percent)
    except StrategyError as error:
        sys.exit(f"rota-sidecar: {error}")
    offered = offerable(config, strategies)
    wrong = assignor_problem(offered, strategies)
    if wrong:
        sys.exit(f"rota-sidecar: --assignors: {wrong}")
    wrong = kafka_property_problem(config)
    if wrong:
        sys.exit(f"rota-sidecar: --config: {wrong}")
    return Setup(sources, replace(config, assignors=offered), strategies)


def offerable(config: "SidecarConfig", strategies: "Strategies") -> tuple[str, ...]:
    """
    Return the strategies to offer at the start.

    While Fleet changes the strategy of a group, a sidecar in which the new one is not installed joins with the former one. It refuses
    the same settings when Fleet sends them, and the status of the group names its pod.
    """
    installed = tuple(name for name in config.assignors if name in strategies)
    return installed if installed and config.fleet.address else config.assignors


async def serve(setup: Setup) -> str:
    """Run the sidecar until it ends; return why it failed, or an empty string. Raises StateFileError, BindError."""
    from rota_service.event_log import open_event_log
    from rota_sidecar.config.validation import assignor_problem
    from rota_sidecar.process.sidecar import serve_application

    event_log = open_event_log("rota-sidecar", setup.config.process.log_format)
    if wrong := assignor_problem(setup.sources.config().assignors, setup.strategies):
        event_log.warning(f"{wrong}; joining with {', '.join(setup.config.assignors)}")
    failed = "unexpected error"
    try:
        failed = await serve_application(*setup, event_log)
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
