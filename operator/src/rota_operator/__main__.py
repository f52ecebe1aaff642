"""
`python -m rota_operator`: parses flags and runs `cluster` or `local`, until SIGINT or SIGTERM, or `certificates` once; prints errors
as one line.

Started by `rota up` and `rota operator`, by container images and by tests. Modules are imported late, so that `--version` and
wrong flags answer at once.
"""

import argparse
import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rota_operator.cluster.config import DESCRIPTION, add_flags, config_of, error_in

if TYPE_CHECKING:
    from rota_operator.local.commands import LocalPaths
    from rota_operator.local.runner import Display, Runner


NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def main() -> None:
    """Parse the command line and run the command; exit with status 2 for invalid flags."""
    parser = argparse.ArgumentParser(
        prog="rota-operator",
        description="Runs the workloads of ConsumerGroup resources: in a Kubernetes cluster, or on this machine.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-operator')}")
    commands = parser.add_subparsers(dest="command", required=True)
    add_local(commands.add_parser("local", help="run manifests as processes on this machine"))
    cluster = commands.add_parser(
        "cluster", help="reconcile the resources of a Kubernetes cluster", description=DESCRIPTION
    )
    add_flags(cluster)
    certificates = commands.add_parser(
        "certificates", help="issue and renew certificates of Rota's servers in a cluster"
    )
    add_certificates(certificates)
    options = parser.parse_args()
    if options.command == "cluster":
        run_cluster(options, cluster)
        return
    if options.command == "certificates":
        run_certificates(options, certificates)
        return
    if options.demo_seconds is not None and options.file:
        parser.error("--demo-seconds cannot be combined with -f; omit one of them")
    if options.kafka and not options.file:
        parser.error("--kafka requires -f: the demo runs on Rota's own log")
    run_local(options)


def add_local(local: argparse.ArgumentParser) -> None:
    """Add the flags of `local`."""
    local.add_argument(
        "-f",
        "--file",
        type=Path,
        action="append",
        help="manifest file or folder to run; repeatable; without it, the demo runs",
    )
    local.add_argument(
        "--home",
        type=Path,
        default=Path(".rota"),
        help="folder of process logs, state and the embedded log; one runner at a time",
    )
    local.add_argument(
        "--listen", default="127.0.0.1:7070", help="address of the coordinator; another port if it is in use"
    )
    local.add_argument(
        "--page", default="127.0.0.1:7072", help="address of the web page; another port if it is in use"
    )
    local.add_argument(
        "--kafka",
        default="",
        help="Kafka brokers (HOST:PORT, comma-separated) that replace every rota:// address in the manifests",
    )
    local.add_argument(
        "--demo-seconds",
        type=float,
        help="run the demo unattended for this many seconds, and print a one-line summary",
    )
    local.add_argument(
        "--plain", action="store_true", help="print lines instead of tables, even on a terminal"
    )


def run_cluster(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Run the operator until SIGINT or SIGTERM. Exits with 2 for an invalid configuration, with 1 on failure."""
    config = config_of(options, own_namespace(), socket.gethostname())
    if error := error_in(config):
        parser.error(error)
    from rota_service.partial_packages import load_submodules_only

    # Of the client of Kubernetes the one for asyncio only, without the other's two hundred modules, and 7 MiB.
    load_submodules_only("kubernetes")
    from rota_operator.cluster.credentials import NoCredentials
    from rota_operator.cluster.kafka_access import InvalidClusters
    from rota_operator.cluster.process import run
    from rota_operator.cluster.process_clocks import ProcessClocks
    from rota_service.addresses import BindError
    from rota_service.event_log import open_event_log
    from rota_service.server_certificates import CertificateError

    event_log = open_event_log("rota-operator", config.log_format)
    try:
        asyncio.run(run(config, event_log, ProcessClocks(wall_ms, monotonic_s)))
    except (BindError, CertificateError, InvalidClusters, NoCredentials) as stopped:
        sys.exit(str(stopped))


def add_certificates(parser: argparse.ArgumentParser) -> None:
    """Add the description and the flags of `certificates`."""
    from rota_operator.certificates.options import DESCRIPTION, add_flags

    parser.description = DESCRIPTION
    add_flags(parser)


def run_certificates(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Issue the certificates that are due. Exits with 2 for invalid flags, with 1 on failure."""
    from rota_operator.certificates.job import CertificatesRun
    from rota_operator.certificates.openssl import OpensslFailed
    from rota_operator.certificates.options import flags_error
    from rota_operator.cluster import credentials
    from rota_operator.cluster.api import Api
    from rota_operator.cluster.errors import ApiError
    from rota_service.event_log import open_event_log

    if error := flags_error(options):
        parser.error(error)
    event_log = open_event_log("rota-operator", options.log_format)

    async def run() -> None:
        api = Api(await credentials.load(Path(options.kubeconfig) if options.kubeconfig else None))
        try:
            with TemporaryDirectory() as folder:
                certificates = CertificatesRun(api, Path(folder), wall_ms() / 1000, event_log)
                await certificates.run(
                    options.namespace, options.authority, options.certificate, options.days
                )
        finally:
            await api.close()

    try:
        asyncio.run(run())
    except (ApiError, OpensslFailed, credentials.NoCredentials) as stopped:
        sys.exit(str(stopped))


def own_namespace() -> str:
    """Return the namespace of this pod; empty outside of one."""
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError:
        return ""


def run_local(options: argparse.Namespace) -> None:
    """Run manifests, or the demo, until SIGINT or SIGTERM; a second signal skips the drains. Exits with 1 on failure."""
    from rota_operator.local.demo import Demo, demo_folder, hints
    from rota_operator.local.home import make_private
    from rota_operator.local.paths import CannotStart, local_paths
    from rota_operator.local.runner import Runner, load
    from rota_operator.manifests.documents import InvalidManifest
    from rota_service.private_files import owner_only

    async def run() -> bool:
        folder = None if options.file else demo_folder()
        manifests = load(options.file or [folder], on_kafka=bool(options.kafka))
        demo = None
        with ExitStack() as stack:
            umask = stack.enter_context(owner_only())
            at = local_paths(options.home, options.listen, options.page, options.kafka)
            paths = replace(stack.enter_context(at), umask=umask)
            print_line, displays = outputs(options, paths)
            make_private(paths.home, print_line)
            servers = "Kafka brokers" if paths.kafka else "coordinator"
            print_line(f"{servers}: {paths.servers}; logs: {paths.home / 'logs'}")
            if folder is not None and options.demo_seconds is None:
                print_line(hints(paths, folder))
            elif folder is not None:
                demo = Demo(folder, options.demo_seconds, print_line, monotonic_s)
                displays.append(demo.play)
            runner, stopping = Runner(manifests, paths, print_line, wall_ms), asyncio.Event()

            def stop() -> None:
                if stopping.is_set():
                    print_line("stopping without waiting for drains")
                    runner.force_stop()
                stopping.set()

            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop)
            await runner.run(stopping, displays)
        return demo is None or demo.succeeded is True

    try:
        succeeded = asyncio.run(run())
    except (CannotStart, InvalidManifest) as error:
        sys.exit(str(error))
    sys.exit(0 if succeeded else 1)


def outputs(
    options: argparse.Namespace, paths: "LocalPaths"
) -> tuple[Callable[[str], None], "list[Display]"]:
    """Return the function that prints a line, and the displays to run: the web page, and tables if on a terminal."""

    async def show_page(runner: "Runner") -> None:
        # In a thread: the import takes a while, and the processes start meanwhile.
        await asyncio.to_thread(import_module, "rota_operator.local.page")
        from rota_operator.local.page import Page
        from rota_operator.local.paths import publish
        from rota_operator.page.server import serve_page

        async with serve_page(Page(runner.dashboard, runner.scale, runner.reset), paths.page):
            await runner.coordinator_ready()
            publish(paths)
            echo(f"web page: http://{paths.page}")
            await asyncio.Event().wait()

    if options.plain or options.demo_seconds is not None or not sys.stdout.isatty():
        echo = print_line
        return echo, [show_page]
    from rich.console import Console

    from rota_operator.local.table import Terminal

    terminal = Terminal(Console())
    echo = terminal.print_line
    return echo, [show_page, lambda runner: terminal.show(runner.dashboard)]


def wall_ms() -> int:
    """Wall clock: milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Monotonic clock, in seconds."""
    return time.monotonic()  # noqa: TID251  every other module takes it as an argument


def print_line(line: str) -> None:
    """Write one line to standard output, unbuffered."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
