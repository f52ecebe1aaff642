"""
Finds out which Secrets a group's pods wait for, without a right to read Secrets: the kubelet says it in Events.

Only asked for groups that name Secrets in `spec.auth`. A pod that cannot mount a Secret has a FailedMount event with the
kubelet's message; events of pods that have started since, or are gone, do not count.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rota_operator.cluster.api import Api
from rota_operator.cluster.kinds import EVENT, POD
from rota_operator.reconcile.observed import Object

NO_SECRET = re.compile(r'secret "(?P<name>[^"]+)" not found')
# references non-existent secret key: NAME; the volume's name is in the message, the Secret's is not.
NO_KEY = re.compile(r"references non-existent secret key: (?P<key>\S+)")
FAILED_MOUNT = "FailedMount"
PODS_MAX = 20


class PendingPods(NamedTuple):
    """The pending pods of a group that names Secrets."""

    exist: bool = False
    # As "name" or "name/key"; empty while the kubelet has not said so yet.
    missing_secrets: tuple[str, ...] = ()


async def pending_pods(api: Api, namespace: str, selector: str, resource: Object) -> PendingPods:
    """Return whether pods of a group are pending, and the Secrets that they miss. Raises ApiError."""
    named = dict(secret_keys((resource.get("spec") or {}).get("auth") or {}))
    if not named:
        return PendingPods()
    waiting = [
        each["metadata"]["uid"]
        async for each in api.list(POD, namespace, selector)
        if (each.get("status") or {}).get("phase") == "Pending"
    ]
    found: dict[str, None] = {}
    for uid in waiting[:PODS_MAX]:
        fields = f"involvedObject.uid={uid},reason={FAILED_MOUNT}"
        async for event in api.list(EVENT, namespace, fields=fields):
            found |= dict.fromkeys(missing_in(str(event.get("message", "")), named))
    return PendingPods(bool(waiting), tuple(found))


def missing_in(message: str, named: dict[str, str]) -> Iterator[str]:
    """Yield the Secrets, or keys of Secrets, that the kubelet's message says are missing."""
    for match in NO_SECRET.finditer(message):
        if match["name"] in named.values():
            yield match["name"]
    for match in NO_KEY.finditer(message):
        if match["key"] in named:
            yield f"{named[match['key']]}/{match['key']}"


def secret_keys(auth: Object) -> Iterator[tuple[str, str]]:
    """Yield (key, name) of each reference to a Secret below a part of the spec."""
    for value in auth.values():
        if isinstance(value, dict):
            if isinstance(value.get("name"), str) and isinstance(value.get("key"), str):
                yield value["key"], value["name"]
            else:
                yield from secret_keys(value)
