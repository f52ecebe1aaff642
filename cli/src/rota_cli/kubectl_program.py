"""Assembles the commands of `kubectl rota` into one program."""

import typer

from rota_cli.commands.kubectl.groups import groups
from rota_cli.commands.parts import version

kubectl_program = typer.Typer(
    name="kubectl rota",
    help="Consumer groups of Rota in a Kubernetes cluster, through its API server alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
kubectl_program.add_typer(groups, name="groups")
kubectl_program.command()(version)


@kubectl_program.callback()
def root() -> None:
    """Consumer groups of Rota in a Kubernetes cluster, through its API server alone."""
