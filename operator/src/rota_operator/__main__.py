"""`python -m rota_operator`: the part as a program. Started by `rota`, by container images and by tests."""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota_operator.local.commands import Place
    from rota_operator.local.runner import Runner, Show


def main() -> None:
    """Start what is named, or say in one sentence why not."""
    parser = argparse.ArgumentParser(
        prog="rota-operator",
        description="Runs the workloads of ConsumerGroup resources. In this version: on this machine only.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-operator')}")
    commands = parser.add_subparsers(dest="command", required=True)
    local = commands.add_parser("local", help="run manifests as processes on this machine")
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
    options = parser.parse_args()
    if options.demo_seconds is not None and options.file:
        parser.error("--demo-seconds cannot be combined with -f; omit one of them")
    if options.kafka and not options.file:
        parser.error("--kafka requires -f: the demo runs on Rota's own log")
    run_local(options)


def run_local(options: argparse.Namespace) -> None:
    """Until SIGINT or SIGTERM."""
    # Imported late: --version and a wrong flag answer at once.
    from rota_operator.local.demo import Demo, demo_folder, hints
    from rota_operator.local.home import make_private
    from rota_operator.local.runner import CannotRun, Runner, load, place_at
    from rota_operator.manifests.documents import InvalidManifest
    from rota_service.private_files import owner_only

    async def run() -> bool:
        folder = None if options.file else demo_folder()
        manifests = load(options.file or [folder], on_kafka=bool(options.kafka))
        demo = None
        with ExitStack() as stack:
            umask = stack.enter_context(owner_only())
            at = place_at(options.home, options.listen, options.page, options.kafka)
            place = replace(stack.enter_context(at), umask=umask)
            say, shows = talking(options, place)
            make_private(place.home, say)
            servers = "Kafka brokers" if place.kafka else "coordinator"
            say(f"{servers}: {place.servers}; logs: {place.home / 'logs'}")
            if folder is not None and options.demo_seconds is None:
                say(hints(place, folder))
            elif folder is not None:
                demo = Demo(folder, options.demo_seconds, say, steady_s)
                shows.append(demo.play)
            runner, ends = Runner(manifests, place, say, wall_ms), asyncio.Event()

            def end() -> None:
                if ends.is_set():
                    say("stopping without waiting for drains")
                    runner.hurry()
                ends.set()

            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, end)
            await runner.run(ends, shows)
        return demo is None or demo.went_well is True

    try:
        went_well = asyncio.run(run())
    except (CannotRun, InvalidManifest) as error:
        sys.exit(str(error))
    sys.exit(0 if went_well else 1)


def talking(options: argparse.Namespace, place: "Place") -> tuple[Callable[[str], None], "list[Show]"]:
    """How something is said, and what is shown: tables to whoever sits at a terminal, lines to everybody else."""

    async def show_page(runner: "Runner") -> None:
        # Imported while the processes are started, and beside that: it takes a while.
        await asyncio.to_thread(import_module, "rota_operator.local.page")
        from rota_operator.local.page import Page, serving_page
        from rota_operator.local.runner import publish

        async with serving_page(Page(runner.board, runner.scale, runner.reset), place.page):
            await runner.coordinator_answers()
            publish(place)
            say(f"web page: http://{place.page}")
            await asyncio.Event().wait()

    if options.plain or options.demo_seconds is not None or not sys.stdout.isatty():
        say = say_line
        return say, [show_page]
    from rich.console import Console

    from rota_operator.local.table import Terminal

    terminal = Terminal(Console())
    say = terminal.say
    return say, [show_page, lambda runner: terminal.show(runner.board)]


def wall_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def steady_s() -> float:
    """Since some moment, whatever becomes of the time of day."""
    return time.monotonic()  # noqa: TID251  given to all who need it from here


def say_line(line: str) -> None:
    """To whoever looks."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
