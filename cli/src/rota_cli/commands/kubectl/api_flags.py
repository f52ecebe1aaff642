"""Flags of every command of `kubectl rota`, with kubectl's names; see `commands.flags`."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rota_cli.clusters.clocks import system_clocks
from rota_cli.errors import NotFound, WrongUsage

if TYPE_CHECKING:
    from rota_cli.clusters.kubernetes.api import Api

PANEL = "Connection"
EXTRA = "rota-cli[kubernetes]"
# A DNS subdomain, as names of Kubernetes' objects are.
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

ResourceName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the ConsumerGroup.")]


@dataclass(frozen=True, slots=True)
class Target:
    """A connected API server, and the namespace that the command is about."""

    api: "Api"
    namespace: str
    # Where server and credentials come from.
    source: str


@dataclass(frozen=True, slots=True)
class ApiFlags:
    """Flags of every command that asks the API server."""

    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", help="Namespace of the ConsumerGroup.", rich_help_panel=PANEL,
            show_default="that of the context",
        ),
    ] = ""  # fmt: skip
    context: Annotated[
        str,
        typer.Option(
            "--context", help="Context of the kubeconfig.", rich_help_panel=PANEL, show_default="the current one"
        ),
    ] = ""  # fmt: skip
    kubeconfig: Annotated[
        str,
        typer.Option(
            "--kubeconfig", help="Kubeconfig with server and credentials.", rich_help_panel=PANEL,
            show_default="that of KUBECONFIG, else ~/.kube/config, else the pod's service account",
        ),
    ] = ""  # fmt: skip
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", help="Seconds to wait for a response.", min=0.1, max=3600, rich_help_panel=PANEL
        ),
    ] = 10.0

    def open(self, *names: str) -> Target:
        """Connect to the API server; `names` of objects are validated first. Raises Failure."""
        for flag, name in (("--namespace", self.namespace or None), *(("NAME", each) for each in names)):
            if name is not None and not NAME.fullmatch(name):
                raise WrongUsage(
                    f'{flag} "{name}" is not a valid name: expected lowercase letters, digits, "-" and "."'
                )
        # Only these commands load the Kubernetes client.
        try:
            from rota_cli.clusters.kubernetes.api import Api
            from rota_cli.clusters.kubernetes.kubeconfig import find_access
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("kubernetes", "urllib3"):
                raise
            raise NotFound(f"the Kubernetes client is not installed: run pip install '{EXTRA}'") from None
        access = find_access(self.kubeconfig, self.context)
        api = Api(access, self.timeout, system_clocks().monotonic_s)
        return Target(api, self.namespace or access.namespace, access.source)
