"""
Finds out which Secrets a group's pods wait for, without a right to read Secrets: the kubelet says it in Events.

Only asked for groups that name Secrets in `spec.auth`. The kubelet reports each failed attempt to mount the sidecar's volume of
credentials as an Event, with everything that is missing, and reports no success. So the last such Event of a pod counts, as long as
its volumes are not mounted.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rota_operator.cluster.api import Api
from rota_operator.cluster.kinds import EVENT, POD
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.sidecar import AUTH_VOLUME

NO_SECRET = re.compile(r'secret "(?P<name>[^"]+)" not found')
# The Secret's name is not in the message.
NO_KEY = re.compile(r"references non-existent secret key: (?P<key>[-._a-zA-Z0-9]+)")
OF_VOLUME = f'for volume "{AUTH_VOLUME}"'
FAILED_MOUNT = "FailedMount"
# Condition of a pod whose volumes are mounted.
MOUNTED = "PodReadyToStartContainers"
PODS_MAX = 20


class PendingPods(NamedTuple):
    """The pods of a group that names Secrets which have not mounted their volumes yet."""

    exist: bool = False
    # As "name" or "name/key"; empty while the kubelet has not said so yet.
    missing_secrets: tuple[str, ...] = ()


async def pending_pods(api: Api, namespace: str, selector: str, resource: Object) -> PendingPods:
    """Return whether pods of a group have yet to mount Secrets, and those that they miss. Raises ApiError."""
    named = tuple(secret_keys((resource.get("spec") or {}).get("auth") or {}))
    if not named:
        return PendingPods()
    waiting = [
        each["metadata"]["uid"] async for each in api.list(POD, namespace, selector) if awaits_mount(each)
    ]
    found: dict[str, None] = {}
    for uid in waiting[:PODS_MAX]:
        fields = f"involvedObject.uid={uid},reason={FAILED_MOUNT}"
        events = [event async for event in api.list(EVENT, namespace, fields=fields)]
        found |= dict.fromkeys(missing_in(events, named))
    return PendingPods(bool(waiting), tuple(found))


def awaits_mount(pod: Object) -> bool:
    """Return whether a pod may still lack a Secret: it is to start, and its volumes are not mounted."""
    status = pod.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return (
        status.get("phase") == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
        and conditions.get(MOUNTED) != "True"
    )


def missing_in(events: Sequence[Object], named: Sequence[tuple[str, str]]) -> Iterator[str]:
    """
    Yield the Secrets, or keys of Secrets, that a pod lacked when the kubelet tried to mount them last.

    `named` has (key, name) of the Secrets that the spec names. A missing key is named with each Secret that it may belong to.
    """
    attempts = [each for each in events if OF_VOLUME in str(each.get("message", ""))]
    if not attempts:
        return
    message = str(max(attempts, key=version)["message"])
    for match in NO_SECRET.finditer(message):
        if any(name == match["name"] for _, name in named):
            yield match["name"]
    for match in NO_KEY.finditer(message):
        yield from (f"{name}/{key}" for key, name in named if key == match["key"])


def version(event: Object) -> tuple[int, str]:
    """Return a key that orders Events by their last write; their times have seconds only."""
    number = str(event["metadata"]["resourceVersion"])
    return len(number), number


def secret_keys(auth: Object) -> Iterator[tuple[str, str]]:
    """Yield (key, name) of each reference to a Secret below a part of the spec."""
    for value in auth.values():
        if isinstance(value, dict):
            if isinstance(value.get("name"), str) and isinstance(value.get("key"), str):
                yield value["key"], value["name"]
            else:
                yield from secret_keys(value)
