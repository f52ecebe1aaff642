"""`rota up`, `coordinator`, `sidecar`, `operator`: run the program of that part. `rota version`: versions of all parts."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec

import typer

from rota_cli.errors import NotFound
from rota_cli.output.console import print_out
from rota_cli.output.render import OutputFormat, OutputOption, print_data

PARTS = {
    "rota-proto": "the gRPC contracts",
    "rota-service": "HTTP pages, event log and validation of the parts",
    "rota-coordinator": "group coordinator and embedded topic log",
    "rota-sidecar": "the member beside each application pod",
    "rota": "the SDK",
    "rota-operator": "reconciles ConsumerGroup resources",
    "rota-spark": "Spark applications as members",
    "rota-cli": "this command",
}


@dataclass(frozen=True, slots=True)
class PartCommand:
    """A command that becomes another program, which gets all arguments after it, `--help` included."""

    command: str
    distribution: str
    module: str
    summary: str
    leading_arguments: tuple[str, ...] = ()


PART_COMMANDS = (
    PartCommand(
        "up",
        "rota-operator",
        "rota_operator",
        "Run manifests on this machine: rota up -f FOLDER.",
        ("local",),
    ),
    PartCommand(
        "coordinator", "rota-coordinator", "rota_coordinator", "Run the group coordinator with its log."
    ),
    PartCommand("sidecar", "rota-sidecar", "rota_sidecar", "Run a sidecar."),
    PartCommand("operator", "rota-operator", "rota_operator", "Run the operator."),
)
# The arguments are passed on unparsed.
PASSED_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


def exec_part(part: PartCommand, arguments: list[str]) -> None:
    """Replace this process by the part's program; signals, exit code and output are the program's."""
    if find_spec(part.module) is None:
        raise NotFound(f"{part.distribution} is not installed: run pip install {part.distribution}")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", part.module, *part.leading_arguments, *arguments])


def command_for(part: PartCommand) -> Callable[[typer.Context], None]:
    """Return the click command of a part."""

    def run(context: typer.Context) -> None:
        exec_part(part, context.args)

    run.__doc__ = f"{part.summary} For its flags, see rota {part.command} --help."
    return run


def add_parts(program: typer.Typer) -> None:
    """Add the commands of all parts."""
    for part in PART_COMMANDS:
        program.command(part.command, add_help_option=False, context_settings=PASSED_THROUGH)(
            command_for(part)
        )


def installed_version(name: str) -> str | None:
    """Return the installed version of a part; None if it is not installed."""
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None


def version(output: OutputOption = OutputFormat.TABLE) -> None:
    """List the installed parts and their versions."""
    if output is not OutputFormat.TABLE:
        print_data(
            [{"part": name, "version": installed_version(name), "is": PARTS[name]} for name in PARTS], output
        )
        return
    for name, purpose in PARTS.items():
        print_out(f"{name:<18}{installed_version(name) or 'not installed':<15}{purpose}")
