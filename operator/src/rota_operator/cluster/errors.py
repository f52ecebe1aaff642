"""
Errors of the Kubernetes API, by what can be done about them: one sentence each, without request bodies.

`Api` raises them; the reconciler turns them into a condition, or retries.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from rota_operator.cluster.kinds import ResourceKind

# As the API server's authorizer says it: User "…" cannot patch resource "deployments" in API group "apps" in the namespace "shop".
DENIED = re.compile(r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)"')
CONFLICT_MANAGER = re.compile(r'conflict with "(?P<manager>[^"]+)"')
# In the message of an internal error of the API server, for an apply with a value that it cannot parse, such as a quantity.
UNREADABLE = "failed to convert new object"
MESSAGE_LENGTH_MAX = 1024
NOT_FOUND, CONFLICT, UNAUTHORIZED, FORBIDDEN, TOO_MANY = 404, 409, 401, 403, 429
SERVER_ERROR = 500


class ApiError(Exception):
    """A request that was not carried out. `retry` tells whether the same request may succeed later without a change."""

    retry = False


class NotFound(ApiError):
    """The object does not exist, or the API server does not serve its kind."""


class Conflict(ApiError):
    """
    Another writer was first: the object has changed since it was read, exists already, or a field has another manager.

    `managers` and `fields` are those of a server-side apply; empty for other conflicts, which are worth another attempt.
    """

    def __init__(self, message: str, managers: tuple[str, ...] = (), fields: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.managers = managers
        self.fields = fields
        self.retry = not fields


class Forbidden(ApiError):
    """The operator lacks a right."""

    def __init__(self, message: str, verb: str, resource: str) -> None:
        super().__init__(message)
        self.verb = verb
        self.resource = resource


class Refused(ApiError):
    """The API server refuses the request: invalid, beyond a quota, against a policy. The message is the server's own."""


class Unavailable(ApiError):
    """The API server did not answer in time, is overloaded, or does not know the operator's credentials."""

    retry = True


class Outdated(Unavailable):
    """The API server answered with an older state than it has shown before; nothing may be decided on it."""


def error_of(status: int, body: bytes, kind: ResourceKind, where: str) -> ApiError:
    """Return the error of a response with an HTTP status of 400 or more; `where` is NAMESPACE/NAME, as far as it is known."""
    said = _status_of(body)
    message = str(said.get("message") or f"HTTP status {status}")[:MESSAGE_LENGTH_MAX]
    what = f"{kind.kind} {where}"
    if status == NOT_FOUND:
        return NotFound(f"{what} not found: {message}")
    if status == CONFLICT:
        return _conflict(said, message, what)
    if status == FORBIDDEN and (denied := DENIED.search(message)) is not None:
        verb, resource = denied["verb"], denied["resource"]
        return Forbidden(
            f"the operator may not {verb} {resource} ({what}); grant the verb to its service account",
            verb,
            resource,
        )
    if status == UNAUTHORIZED:
        return Unavailable("the API server rejects the operator's credentials")
    if (status == TOO_MANY or status >= SERVER_ERROR) and UNREADABLE not in message:
        return Unavailable(f"the API server cannot serve the request for {what}: {message}")
    return Refused(f"the API server refuses {what}: {message}")


def _conflict(said: Mapping[str, Any], message: str, what: str) -> Conflict:
    causes = [
        each
        for each in (said.get("details") or {}).get("causes") or ()
        if each.get("reason") == "FieldManagerConflict"
    ]
    if not causes:
        return Conflict(f"{what} was changed meanwhile: {message}")
    named = [CONFLICT_MANAGER.search(each.get("message", "")) for each in causes]
    managers = tuple(dict.fromkeys(each["manager"] for each in named if each is not None))
    fields = tuple(dict.fromkeys(str(each.get("field", "")) for each in causes))
    return Conflict(
        f"{', '.join(managers)} manages {', '.join(fields)} of {what}; remove the field there, or leave it to Rota",
        managers,
        fields,
    )


def _status_of(body: bytes) -> Mapping[str, Any]:
    """Return the Status object of a response; a proxy in between may answer something else."""
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
