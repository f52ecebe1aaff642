"""All commands of `rota`, put together. What each does is in `commands`."""

import typer

from rota_cli.commands.consume import consume
from rota_cli.commands.doctor import doctor
from rota_cli.commands.groups import groups
from rota_cli.commands.observing import explain_group, watch
from rota_cli.commands.parts import add_parts
from rota_cli.commands.produce import produce
from rota_cli.commands.reset import reset
from rota_cli.commands.topics import topics
from rota_cli.output import Output, OutputOption, say, say_data
from rota_cli.versions import PARTS, installed

program = typer.Typer(
    name="rota",
    help="Consumer groups for Kubernetes and for one machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
program.add_typer(topics, name="topics")
groups.command()(reset)
groups.command()(watch)
groups.command("explain")(explain_group)
program.add_typer(groups, name="groups")
for command in (produce, consume, doctor):
    program.command()(command)


@program.callback()
def root() -> None:
    """Consumer groups for Kubernetes and for one machine."""


@program.command()
def version(output: OutputOption = Output.TABLE) -> None:
    """The parts that are installed here, and their versions."""
    if output is not Output.TABLE:
        say_data([{"part": name, "version": installed(name), "is": PARTS[name]} for name in PARTS], output)
        return
    for name, purpose in PARTS.items():
        say(f"{name:<18}{installed(name) or 'not installed':<15}{purpose}")


add_parts(program)
