"""`rota up`, `coordinator`, `sidecar`, `operator`: the other parts, as the programs that they are. `rota version`: all parts."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec

import typer

from rota_cli.errors import NotFound
from rota_cli.output.console import say
from rota_cli.output.render import Output, OutputOption, say_data

PARTS = {
    "rota-proto": "the gRPC contracts",
    "rota-coordinator": "group coordinator and embedded topic log",
    "rota-sidecar": "the member beside each application pod",
    "rota": "the SDK",
    "rota-operator": "reconciles ConsumerGroup resources",
    "rota-spark": "Spark applications as members",
    "rota-cli": "this command",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A command that becomes another program. All that stands behind it is for that program, `--help` too."""

    command: str
    distribution: str
    module: str
    does: str
    first: tuple[str, ...] = ()


PROGRAMS = (
    Part(
        "up",
        "rota-operator",
        "rota_operator",
        "Run manifests on this machine: rota up -f FOLDER.",
        ("local",),
    ),
    Part("coordinator", "rota-coordinator", "rota_coordinator", "Run the group coordinator with its log."),
    Part("sidecar", "rota-sidecar", "rota_sidecar", "Run a sidecar."),
    Part("operator", "rota-operator", "rota_operator", "Run the operator."),
)
# Nothing is read here, so that nothing can be misread.
PASSED_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


def become(part: Part, arguments: list[str]) -> None:
    """Replace this process: signals, exit code and output are the part's own."""
    if find_spec(part.module) is None:
        raise NotFound(f"{part.distribution} is not installed here: pip install {part.distribution}")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", part.module, *part.first, *arguments])


def runner(part: Part) -> Callable[[typer.Context], None]:
    """The command of a part."""

    def run(context: typer.Context) -> None:
        become(part, context.args)

    run.__doc__ = f"{part.does} Its own flags: rota {part.command} --help."
    return run


def add_parts(program: typer.Typer) -> None:
    """All of them."""
    for part in PROGRAMS:
        program.command(part.command, add_help_option=False, context_settings=PASSED_THROUGH)(runner(part))


def installed(name: str) -> str | None:
    """The version of a part in this environment."""
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None


def version(output: OutputOption = Output.TABLE) -> None:
    """The parts that are installed here, and their versions."""
    if output is not Output.TABLE:
        say_data([{"part": name, "version": installed(name), "is": PARTS[name]} for name in PARTS], output)
        return
    for name, purpose in PARTS.items():
        say(f"{name:<18}{installed(name) or 'not installed':<15}{purpose}")
