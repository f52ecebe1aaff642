"""Assembles all commands of `rota` into one program."""

import typer

from rota_cli.commands.alter_topics import add_partitions, alter
from rota_cli.commands.consume import consume
from rota_cli.commands.dead_letters import dead_letters
from rota_cli.commands.dead_letters_replay import replay
from rota_cli.commands.delete_offsets import delete_offsets
from rota_cli.commands.doctor import doctor
from rota_cli.commands.explain import explain_command
from rota_cli.commands.groups import groups
from rota_cli.commands.lag import lag
from rota_cli.commands.offsets import offsets
from rota_cli.commands.parts import add_parts, version
from rota_cli.commands.produce import produce
from rota_cli.commands.reset import reset
from rota_cli.commands.topics import topics
from rota_cli.commands.watch import watch

program = typer.Typer(
    name="rota",
    help="Consumer groups for Kubernetes and for one machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topics.command("add-partitions")(add_partitions)
topics.command()(alter)
program.add_typer(topics, name="topics")
groups.command()(lag)
groups.command()(offsets)
groups.command()(delete_offsets)
groups.command()(reset)
groups.command()(watch)
groups.command("explain")(explain_command)
program.add_typer(groups, name="groups")
dead_letters.command()(replay)
program.add_typer(dead_letters, name="dead-letters")
for command in (produce, consume, doctor, version):
    program.command()(command)


@program.callback()
def root() -> None:
    """Consumer groups for Kubernetes and for one machine."""


add_parts(program)
