"""Assembles the commands of `kubectl rota` into one program."""

import typer

from rota_cli.commands.kubectl.doctor import doctor
from rota_cli.commands.kubectl.explain import explain_command
from rota_cli.commands.kubectl.groups import groups
from rota_cli.commands.kubectl.reset import reset
from rota_cli.commands.kubectl.ui import ui
from rota_cli.commands.kubectl.upgrade import upgrade
from rota_cli.commands.kubectl.watch import watch
from rota_cli.commands.parts import version

kubectl_program = typer.Typer(
    name="kubectl rota",
    help="Consumer groups of Rota in a Kubernetes cluster, through its API server alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Shells complete programs, and this one is a plugin of another.
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
groups.command("explain")(explain_command)
groups.command()(watch)
groups.command()(reset)
groups.command()(upgrade)
kubectl_program.add_typer(groups, name="groups")
for command in (doctor, ui, version):
    kubectl_program.command()(command)


@kubectl_program.callback()
def root() -> None:
    """Consumer groups of Rota in a Kubernetes cluster, through its API server alone."""
