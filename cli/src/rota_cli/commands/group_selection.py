"""Arguments of commands about several groups: those named, or all."""

from dataclasses import dataclass
from typing import Annotated

import typer

from rota_cli.clusters.model import Group
from rota_cli.clusters.port import Cluster
from rota_cli.commands.completion import complete_group
from rota_cli.commands.queries import require_group
from rota_cli.errors import WrongUsage

GroupNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[GROUP]...", help="Group IDs.", show_default=False, autocompletion=complete_group
    ),
]


@dataclass(frozen=True, slots=True)
class GroupSelection:
    """The groups of a command."""

    names: GroupNames = None
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="Select all groups, instead of naming them.")
    ] = False

    @property
    def is_single(self) -> bool:
        """True if one group is named: its output is one object instead of a list."""
        return len(self.names or ()) == 1

    def describe(self, cluster: Cluster) -> list[Group]:
        """Describe the groups, each once. Raise WrongUsage without a selection, NotFound for a named group that does not exist."""
        if bool(self.names) == self.all_groups:
            raise WrongUsage("name at least one group, or pass --all-groups")
        if self.names:
            return [require_group(cluster, name) for name in dict.fromkeys(self.names)]
        found = [cluster.groups.describe(listed.group) for listed in cluster.groups.list_all()]
        # A group may be deleted after it was listed.
        return [group for group in found if group.exists]
