"""
Writes that the proxy of the API server refuses, or whose answers it holds back: their sender is killed meanwhile.

A test says which, and `api_proxy` asks for each write. An operator that is killed then has done exactly what it does before the write,
or before its answer.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LOOK_S = 0.1
Body = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class HeldWrite:
    """A kind of writes; its flags are written under the lock of `HeldWrites`."""

    namespace: str
    method: str
    # Plural and name, such as configmaps/orders; of a POST too.
    resource: str
    matches: Callable[[Body], bool]
    # The API server carries the first one out, and its answer is held back. If False all are refused.
    is_carried_out: bool
    is_reached: bool = False
    is_released: bool = False


class HeldWrites:
    """
    Kinds of writes that are held back; called from the test's thread, and on the loop of the proxy.

    Invariant: until `release` the API server carries out no write of these kinds, or only the first one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: list[HeldWrite] = []

    def hold(
        self,
        namespace: str,
        method: str,
        resource: str,
        *,
        is_carried_out: bool,
        matches: Callable[[Body], bool] = lambda _: True,
    ) -> None:
        """Hold the writes back of which the method, the resource and the body match."""
        with self._lock:
            self._kinds.append(HeldWrite(namespace, method, resource, matches, is_carried_out))

    def are_reached(self) -> bool:
        """Return whether all that are to be carried out have been."""
        with self._lock:
            return all(each.is_reached for each in self._kinds if each.is_carried_out)

    def release(self) -> None:
        """Hold nothing back any more."""
        with self._lock:
            for each in self._kinds:
                each.is_released = True
            self._kinds.clear()

    def find(self, namespace: str, method: str, resource: str, body: bytes) -> HeldWrite | None:
        """Return the kind of a write; None: it is not held back."""
        with self._lock:
            for each in self._kinds:
                plural, _, name = each.resource.partition("/")
                if (each.namespace, each.method) == (namespace, method) and resource in (
                    plural,
                    each.resource,
                ):
                    sent = json.loads(body)
                    is_named = resource == each.resource or sent["metadata"]["name"] == name
                    if is_named and each.matches(sent):
                        return each
        return None

    async def wait(self, held: HeldWrite) -> None:
        """Wait for `release`, on the loop of the proxy."""
        with self._lock:
            held.is_reached = True
        while not held.is_released:
            await asyncio.sleep(LOOK_S)
