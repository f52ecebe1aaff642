"""
The secrets by which the runner's Fleet recognizes the sidecars that the runner has started.

The runner issues a secret for each start of a sidecar and writes it to a file that this user alone reads; the sidecar
shows it as a bearer token. A secret is never an argument: every process of the machine can read those.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rota_service.private_files import FILE_MODE

SECRET_BYTES = 32


class Replica(NamedTuple):
    """A replica, as its sidecar names itself in reports."""

    name: str
    group_id: str


class ReplicaSecrets:
    """Invariant: a replica has at most one secret, and a secret has one replica."""

    def __init__(self, new_secret: Callable[[], str] = lambda: secrets.token_urlsafe(SECRET_BYTES)) -> None:
        self._new_secret = new_secret
        self._secrets: dict[Replica, bytes] = {}

    def issue(self, replica: Replica, file: Path) -> None:
        """Write a new secret for the replica to `file`; the earlier one is not recognized any more."""
        secret = self._new_secret()
        file.unlink(missing_ok=True)
        # Made anew, for this user alone from its first moment: another file or a link there is not written to.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as opened:
            opened.write(f"{secret}\n")
        self._secrets[replica] = secret.encode()

    def revoke(self, replica: Replica) -> None:
        """Recognize the replica's secret no more."""
        self._secrets.pop(replica, None)

    def replica_of(self, secret: str) -> Replica | None:
        """The replica that a secret was issued for; the time that it takes tells nothing of other secrets."""
        shown = secret.encode(errors="replace")
        found = None
        for replica, known in self._secrets.items():
            if secrets.compare_digest(known, shown):
                found = replica
        return found
