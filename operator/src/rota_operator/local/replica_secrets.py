"""
Bearer tokens that authenticate the runner's sidecars to its Fleet.

The runner issues a token for each start of a sidecar, in a file that only this user can read. A token is never an argument:
every process of the machine can read those.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rota_operator.fleet.principal import Principal, SidecarRef
from rota_service.private_files import FILE_MODE
from rota_service.token_review import Unauthenticated

SECRET_BYTES = 32
# Replicas have unique names, whatever the namespace of their workload.
NAMESPACE = "local"
UNAUTHENTICATED = "unknown token; this Fleet accepts sidecars started by its runner (see --fleet-token-file)"


class Replica(NamedTuple):
    """Identity of a replica: the name and group that its sidecar reports."""

    name: str
    group_id: str


class ReplicaSecrets:
    """Invariant: a replica has at most one secret, and a secret has one replica."""

    def __init__(self, new_secret: Callable[[], str] = lambda: secrets.token_urlsafe(SECRET_BYTES)) -> None:
        self._new_secret = new_secret
        self._secrets: dict[Replica, bytes] = {}

    def issue(self, replica: Replica, file: Path) -> None:
        """Write a new token for the replica to `file`; the previous one becomes invalid."""
        secret = self._new_secret()
        file.unlink(missing_ok=True)
        # Created exclusively and private: an existing file or link is never written to.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as opened:
            opened.write(f"{secret}\n")
        self._secrets[replica] = secret.encode()

    def revoke(self, replica: Replica) -> None:
        """Invalidate the replica's token."""
        self._secrets.pop(replica, None)

    async def authenticate(self, token: str) -> Principal:
        """Return the sidecar of the replica that the token was issued to; raises Unauthenticated. Called by Fleet."""
        replica = self.replica_of(token)
        if replica is None:
            raise Unauthenticated(UNAUTHENTICATED)
        return Principal(SidecarRef(NAMESPACE, replica.name), replica.group_id)

    def replica_of(self, secret: str) -> Replica | None:
        """Return the replica that the token was issued to, in time that does not depend on other tokens."""
        shown = secret.encode(errors="replace")
        found = None
        for replica, known in self._secrets.items():
            if secrets.compare_digest(known, shown):
                found = replica
        return found
