"""
Errors of requests to the API server: one message each, which says what is wrong, where, and what to do next.

`api` raises them. `follow` goes on after those of NotReachable and after HistoryGone; all others end a command.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rota_cli.clusters.kubernetes.kinds import CONSUMER_GROUP, ResourceKind
from rota_cli.errors import Failure, NotFound, NotReachable

# In the API server's refusal: User "alice" cannot get resource "pods" in API group "" in the namespace "shop".
DENIED_USER = re.compile(r'User "([^"]+)" cannot')
CONFLICT_MANAGER = re.compile(r'conflict with "([^"]+)"')
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 401, 403, 404, 409, 410, 429
SERVER_ERROR = 500
MESSAGE_LENGTH_MAX = 1024


class Asked(NamedTuple):
    """A request, as messages name it."""

    # As in RBAC rules: get, list, watch, patch or create.
    verb: str
    kind: ResourceKind
    namespace: str | None
    # Empty: all of the namespace.
    name: str
    server: str

    @property
    def what(self) -> str:
        """Return the object or the list that is asked for."""
        if self.name:
            where = f"{self.namespace}/" if self.namespace else ""
            return f"{self.kind.singular} {where}{self.name}"
        return self.kind.plural + (f" in namespace {self.namespace}" if self.namespace else "")


class ObjectNotFound(NotFound):
    """The object does not exist."""


class NotServed(NotFound):
    """The API server does not serve the kind."""


class Forbidden(Failure):
    """The caller lacks a right."""


class HistoryGone(Failure):
    """A watch from this resource version is not possible any more; list anew."""


class Changed(Failure):
    """The object was changed after it was read."""


class FieldConflict(Failure):
    """Another field manager owns a field that was applied."""


def failure_of(status: int, body: bytes, asked: Asked) -> Failure:
    """Return the error of a response with an HTTP status of 400 or more."""
    said = _status_object(body)
    message = str(said.get("message") or f"HTTP status {status}")[:MESSAGE_LENGTH_MAX].rstrip(".")
    if status == UNAUTHORIZED:
        return Failure(
            f"{asked.server} rejects the caller's credentials: log in again, or choose others with --context or --kubeconfig"
        )
    if status == FORBIDDEN:
        return _forbidden(message, asked)
    if status == NOT_FOUND:
        return _not_found(said, asked)
    if status == CONFLICT:
        return _conflict(said, message, asked)
    if status == GONE:
        return HistoryGone(f"{asked.server} has no history of {asked.what} from there on: list it anew")
    if status == TOO_MANY or status >= SERVER_ERROR:
        return NotReachable(f"{asked.server} cannot serve {asked.what} now ({message}): try again")
    return Failure(f"{asked.server} rejects the {asked.verb} of {asked.what}: {message}")


def _forbidden(message: str, asked: Asked) -> Forbidden:
    found = DENIED_USER.search(message)
    user = found[1] if found else "the caller"
    where = f" in namespace {asked.namespace}" if asked.namespace else ""
    return Forbidden(
        f"{user} may not {asked.verb} {asked.kind.resource}{where} at {asked.server}: ask its administrator for this right"
    )


def _not_found(said: Mapping[str, Any], asked: Asked) -> NotFound:
    # A path that is not served is answered without the name of an object.
    if asked.name and (said.get("details") or {}).get("name"):
        hint = ""
        if asked.kind == CONSUMER_GROUP:
            hint = f": see `kubectl get cg -n {asked.namespace}`, the name is not the group id"
        return ObjectNotFound(f"{asked.what} not found at {asked.server}{hint}")
    if asked.kind == CONSUMER_GROUP:
        return NotServed(
            f"{asked.server} does not serve {CONSUMER_GROUP.api_version}: install its CustomResourceDefinition, "
            "for example with the chart of Rota, or choose another cluster with --context"
        )
    return NotServed(
        f"{asked.server} does not serve {asked.kind.plural} of {asked.kind.api_version}: check its version with `kubectl version`"
    )


def _conflict(said: Mapping[str, Any], message: str, asked: Asked) -> Failure:
    causes = (said.get("details") or {}).get("causes") or ()
    owned = [each for each in causes if each.get("reason") == "FieldManagerConflict"]
    if not owned:
        return Changed(f"{asked.what} at {asked.server} was changed meanwhile: run the command again")
    found = [CONFLICT_MANAGER.search(str(each.get("message", ""))) for each in owned]
    managers = ", ".join(dict.fromkeys(each[1] for each in found if each)) or message
    fields = ", ".join(dict.fromkeys(str(each.get("field", "")).lstrip(".") for each in owned))
    return FieldConflict(
        f"{fields} of {asked.what} is managed by {managers}: change it there, for example in the manifest that is applied"
    )


def _status_object(body: bytes) -> Mapping[str, Any]:
    """Return the Status object of a response; empty for anything else, such as the page of a proxy."""
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
