"""
Newest resource versions that the operator has seen of each kind: a list that is older than they are is not decided on.

`api` notes the version of everything that it reads and writes, the handlers those of the watches, and each list is compared with
them. An API server may answer from the past: a replica of etcd that lags, a cache that has been restarted. Resource versions of one
kind are decimal numbers that rise. They fall only where the store was restored from a backup, so older lists are accepted after
RESTORED_S in which no newer one has come. Reads of a single object are answered from etcd itself, and are not compared.
"""

from collections.abc import Callable

from rota_operator.cluster.kinds import ResourceKind

# An API server that has answered from the past for so long will not catch up: its store was restored.
RESTORED_S = 300.0


class SeenVersions:
    """Versions by kind, of one leader's term; thread-confined. Invariant: the newest version of a kind does not fall within RESTORED_S."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._newest: dict[ResourceKind, str] = {}
        # Since when a kind's lists have been older than the newest version.
        self._outdated_since_s: dict[ResourceKind, float] = {}

    def newest(self, kind: ResourceKind) -> str:
        """Return the newest version of a kind; empty: nothing was seen of it."""
        return self._newest.get(kind, "")

    def note(self, kind: ResourceKind, version: str) -> None:
        """Note the version of an object, or of a list."""
        if order_of(version) > order_of(self.newest(kind)):
            self._newest[kind] = version

    def admit(self, kind: ResourceKind, version: str, than: str) -> bool:
        """Return whether a list of this version may be decided on: it is not older `than` was seen before the request."""
        if order_of(version) >= order_of(than):
            self._outdated_since_s.pop(kind, None)
            self.note(kind, version)
            return True
        now_s = self._monotonic_s()
        if now_s - self._outdated_since_s.setdefault(kind, now_s) < RESTORED_S:
            return False
        self._newest[kind] = version
        del self._outdated_since_s[kind]
        return True

    def forget(self) -> None:
        """Forget everything: a new term trusts nothing of the former one."""
        self._newest.clear()
        self._outdated_since_s.clear()


def order_of(version: str) -> tuple[int, str]:
    """Return a key that orders resource versions: they are decimal numbers."""
    return len(version), version
