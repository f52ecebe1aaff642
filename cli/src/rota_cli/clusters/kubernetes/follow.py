"""
Follows one object of the API server by a watch: yields each version of it, for as long as the caller asks.

    list → watch from its version ─ ended ──────────────→ watch from the last version or bookmark
                                  ├ not reachable ──────→ wait, longer each time → the same
                                  └ history gone (410) ─→ list anew

Called by `kubectl rota groups watch`. What happened while no watch was open is seen as one change.
"""

import random
from collections.abc import Callable, Iterator

from rota_cli.clusters.kubernetes.api import Api, Object
from rota_cli.clusters.kubernetes.errors import HistoryGone
from rota_cli.clusters.kubernetes.kinds import ResourceKind
from rota_cli.errors import NotReachable

BACKOFF_S_MAX = 30.0
BOOKMARK, DELETED = "BOOKMARK", "DELETED"


class Follower:
    """Invariant: `version` is that of the last list, event or bookmark; empty: the next step is a list."""

    def __init__(
        self,
        api: Api,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        wait_s: Callable[[float], object],
        warn: Callable[[str], None],
    ) -> None:
        self._api = api
        self._kind, self._namespace, self._name = kind, namespace, name
        self._wait_s = wait_s
        self._warn = warn
        self._version = ""
        # Attempts in sequence that failed before the first event or bookmark of their watch.
        self._failures = 0
        self._warned = ""

    def versions(self) -> Iterator[Object | None]:
        """Yield the object now and after each change; None: it does not exist. Raises Failure for what waiting does not mend."""
        while True:
            self._failures += 1
            try:
                if not self._version:
                    yield self._list()
                yield from self._watch()
                # The API server has ended it. One without an event is not opened over and over.
                self._failures = min(self._failures, 1)
            except HistoryGone:
                self._version = ""
            except NotReachable as error:
                if str(error) != self._warned:
                    self._warned = str(error)
                    self._warn(f"the watch is interrupted, and goes on by itself: {error}")
            if self._failures:
                longest_s = min(2.0 ** (self._failures - 1), BACKOFF_S_MAX)
                self._wait_s(longest_s * random.uniform(0.5, 1))

    def _list(self) -> Object | None:
        page = self._api.list(self._kind, self._namespace, fields=f"metadata.name={self._name}")
        self._version = page.resource_version
        return page.items[0] if page.items else None

    def _watch(self) -> Iterator[Object | None]:
        for event in self._api.watch(self._kind, self._namespace, self._name, self._version):
            self._version = (event.object.get("metadata") or {}).get("resourceVersion") or self._version
            self._failures, self._warned = 0, ""
            if event.type != BOOKMARK:
                yield None if event.type == DELETED else event.object
