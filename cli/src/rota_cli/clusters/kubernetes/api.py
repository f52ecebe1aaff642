"""
Requests to the Kubernetes API server, one at a time, over one connection. The only module that sends them.

Plain JSON in and out. Every request has the deadline of `Api.timeout_s`, an answer a limit in bytes; nothing is retried here.
"""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException

from rota_cli.clusters.kubernetes.errors import Asked, ObjectNotFound, failure_of
from rota_cli.clusters.kubernetes.kinds import ACCESS_REVIEW, ACCOUNT_TOKEN, SERVICE_ACCOUNT, ResourceKind
from rota_cli.clusters.kubernetes.kubeconfig import Access
from rota_cli.errors import Failure, NotReachable

Object = Mapping[str, Any]

JSON, APPLY, MERGE = "application/json", "application/apply-patch+yaml", "application/merge-patch+json"
BAD_STATUS = 400
CHUNK_BYTES = 65_536
# etcd stores objects of up to 1.5 MiB; a list has up to LIST_MAX of them.
ANSWER_BYTES_MAX, LINE_BYTES_MAX = 64 << 20, 8 << 20
LIST_MAX = 500
# The API server ends a watch after this time, shortly after a bookmark; a new one goes on from there.
WATCH_S = 60


class WatchEvent(NamedTuple):
    """An event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object


class Page(NamedTuple):
    """The first LIST_MAX objects of a list."""

    items: list[Object]
    resource_version: str
    is_whole: bool


class Api:
    """The API server; close it after use. Every method raises Failure, one of `errors` where the caller can act on it."""

    def __init__(self, access: Access, timeout_s: float, monotonic_s: Callable[[], float]) -> None:
        self.server = access.server
        self.timeout_s = timeout_s
        self._source = access.source
        self._monotonic_s = monotonic_s
        self.configuration = access.configuration
        self._client = ApiClient(access.configuration)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.rest_client.close()

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object:
        """Read one object."""
        asked = Asked("get", kind, namespace, name, self.server)
        return self._request("GET", kind.path(namespace, name), asked)

    def find(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """Read one object; None if it does not exist."""
        try:
            return self.get(kind, namespace, name)
        except ObjectNotFound:
            return None

    def list(self, kind: ResourceKind, namespace: str, *, selector: str = "", fields: str = "") -> Page:
        """List objects by a label selector and a field selector."""
        selectors = {"labelSelector": selector, "fieldSelector": fields}
        query = {"limit": str(LIST_MAX), **{name: value for name, value in selectors.items() if value}}
        asked = Asked("list", kind, namespace, "", self.server)
        found = self._request("GET", kind.path(namespace, **query), asked)
        metadata = found.get("metadata") or {}
        return Page(
            list(found.get("items") or ()), metadata.get("resourceVersion", ""), not metadata.get("continue")
        )

    def read(self, path: str, kind: ResourceKind) -> Object:
        """Read a path that is no object of a kind, such as the API server's version; `kind` is named in errors."""
        return self._request("GET", path, Asked("get", kind, None, "", self.server))

    def apply(
        self, kind: ResourceKind, fields: Object, *, manager: str, force: bool, dry_run: bool
    ) -> Object:
        """
        Server-side apply: own exactly these fields of the object that `metadata` names.

        Without `force`, raises FieldConflict where another manager owns one with another value.
        """
        namespace, name = str(fields["metadata"]["namespace"]), str(fields["metadata"]["name"])
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        asked = Asked("patch", kind, namespace, name, self.server)
        return self._request("PATCH", kind.path(namespace, name, **query), asked, fields, APPLY)

    def merge(self, kind: ResourceKind, namespace: str, name: str, fields: Object, *, manager: str) -> Object:
        """Merge fields into an object; null removes one. Raises Changed if the object has another version than `metadata` says."""
        asked = Asked("patch", kind, namespace, name, self.server)
        path = kind.path(namespace, name, fieldManager=manager)
        return self._request("PATCH", path, asked, fields, MERGE)

    def may(self, verb: str, kind: ResourceKind, namespace: str, name: str = "") -> bool:
        """Return whether the caller has a right, for one object or, without a name, for all of the namespace."""
        resource, _, subresource = kind.plural.partition("/")
        attributes = {
            "verb": verb, "group": kind.group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name,
        }  # fmt: skip
        review = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        asked = Asked("create", ACCESS_REVIEW, None, "", self.server)
        answer = self._request("POST", ACCESS_REVIEW.path(None), asked, review)
        return bool((answer.get("status") or {}).get("allowed"))

    def authorization(self) -> str:
        """Return the header Authorization of now, of callers with a bearer token; empty: of others, such as a client certificate."""
        prepared = self._client.param_serialize("GET", "/", header_params={}, auth_settings=["BearerToken"])
        headers = {name.lower(): value for name, value in prepared[2].items()}
        return str(headers.get("authorization") or "")

    def create_token(self, namespace: str, account: str, audience: str, seconds: int) -> str:
        """Request a token of a service account for one audience."""
        path = f"{SERVICE_ACCOUNT.path(namespace, account)}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [audience], "expirationSeconds": seconds},
        }
        asked = Asked("create", ACCOUNT_TOKEN, namespace, account, self.server)
        return str((self._request("POST", path, asked, body).get("status") or {}).get("token") or "")

    def watch(self, kind: ResourceKind, namespace: str, name: str, version: str) -> Iterator[WatchEvent]:
        """
        Watch one object from a resource version on, bookmarks included, until the API server ends the watch.

        Raises HistoryGone if the version is too old, NotReachable if the connection breaks or is silent beyond WATCH_S.
        """
        query = {
            "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_S),
            "fieldSelector": f"metadata.name={name}", "resourceVersion": version,
        }  # fmt: skip
        asked = Asked("watch", kind, namespace, name, self.server)
        response = self._send(
            "GET", kind.path(namespace, **query), (self.timeout_s, WATCH_S + self.timeout_s)
        )
        try:
            if response.status >= BAD_STATUS:
                raise failure_of(response.status, self._read(response), asked)
            for line in self._lines(response):
                event = self._parsed(line)
                if event.get("type") == "ERROR":
                    status = event.get("object") or {}
                    raise failure_of(int(status.get("code") or 0), json.dumps(status).encode(), asked)
                yield WatchEvent(str(event.get("type")), event.get("object") or {})
        finally:
            # Not back into the pool: its rest was not read.
            response.close()

    def _request(
        self, method: str, path: str, asked: Asked, body: Object | None = None, content_type: str = JSON
    ) -> Object:
        response = self._send(method, path, (self.timeout_s, self.timeout_s), body, content_type)
        answer = self._read(response)
        if response.status >= BAD_STATUS:
            raise failure_of(response.status, answer, asked)
        return self._parsed(answer)

    def _send(
        self,
        method: str,
        path: str,
        timeouts_s: tuple[float, float],
        body: Object | None = None,
        content_type: str = JSON,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request with timeouts for connecting and for reading; return the response with its body unread."""
        headers = {"Accept": JSON, "Content-Type": content_type}
        try:
            prepared = self._client.param_serialize(
                method, path, header_params=headers, auth_settings=["BearerToken"]
            )
            sent = self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method, prepared[1], headers=prepared[2], body=body, _request_timeout=timeouts_s
            )
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from None
        response: urllib3.BaseHTTPResponse = sent.response
        return response

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """Read a whole body, within the deadline and the limit."""
        deadline_s, found = self._monotonic_s() + self.timeout_s, bytearray()
        for chunk in self._chunks(response):
            found += chunk
            if self._monotonic_s() > deadline_s:
                response.close()
                raise self._timed_out()
            if len(found) > ANSWER_BYTES_MAX:
                response.close()
                raise Failure(
                    f"{self.server} answers with more than {ANSWER_BYTES_MAX >> 20} MiB: check the address of {self._source}"
                )
        response.release_conn()
        return bytes(found)

    def _lines(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        rest = b""
        for chunk in self._chunks(response):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from filter(None, lines)
            if len(rest) > LINE_BYTES_MAX:
                raise Failure(f"{self.server} sends an event of more than {LINE_BYTES_MAX >> 20} MiB")

    def _chunks(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        try:
            yield from response.stream(CHUNK_BYTES, decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise self._unreachable(error) from None

    def _parsed(self, text: bytes) -> Object:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Failure(f"{self.server} does not answer in JSON: check the address of {self._source}")
        return value

    def _unreachable(self, error: Exception) -> NotReachable:
        if isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError) and not isinstance(
            error, urllib3.exceptions.NewConnectionError
        ):
            return self._timed_out()
        if isinstance(error, ApiException):
            reason = " ".join(str(error.reason).split())
            return NotReachable(
                f"no TLS connection to {self.server} ({reason}): check the certificate authority in {self._source}"
            )
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError | socket.gaierror):
            cause = cause.__cause__ or cause.__context__
        reason = type(error).__name__ if cause is None else str(getattr(cause, "strerror", None) or cause)
        return NotReachable(
            f"{self.server} cannot be reached ({reason}): check that the API server runs, and the address of {self._source}"
        )

    def _timed_out(self) -> NotReachable:
        return NotReachable(
            f"{self.server} did not answer within {self.timeout_s:g} s: check the network, and the address of {self._source}"
        )
