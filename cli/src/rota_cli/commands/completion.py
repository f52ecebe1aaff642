"""Completion of group IDs in the shell, by the groups of the server that the command line so far names."""

from dataclasses import fields
from typing import Any

import typer

from rota.errors import RotaError
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.errors import Failure

# Seconds that a shell waits for a server that does not answer.
TIMEOUT_S = 2.0


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the IDs of groups that begin with `incomplete`; none if the server cannot be asked."""
    names = {field.name for field in fields(ConnectionFlags)}
    given: dict[str, Any] = {name: value for name, value in context.params.items() if name in names}
    try:
        with ConnectionFlags(**{**given, "timeout": TIMEOUT_S}).open() as cluster:
            found = cluster.groups.list_all()
    except (Failure, RotaError):
        # A shell has no place for an error; the command itself prints it.
        return []
    return [each.group for each in found if each.group.startswith(incomplete)]
