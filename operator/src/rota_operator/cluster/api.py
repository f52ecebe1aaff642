"""
Requests to the Kubernetes API server: the only module that sends them, kopf's watches aside.

A thin class over the HTTP client of `kubernetes.aio`: plain JSON in and out, server-side apply, subresources. Every request has a
deadline of REQUEST_S; what fails is raised as one of `errors`, and nothing is retried here. While an overloaded API server asks
for patience (Retry-After), all requests but those for Leases wait before they are sent. A list from the past raises Outdated.
"""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client.api_client import ApiClient

from rota_operator.cluster.errors import NotFound, Outdated, Unavailable, error_of
from rota_operator.cluster.kinds import LEASE, SCALE_API_VERSION, ResourceKind
from rota_operator.cluster.seen_versions import SeenVersions
from rota_operator.reconcile.actions import FIELD_MANAGER
from rota_operator.reconcile.observed import Object

REQUEST_S = 10.0
# Of a list; the API server gives a token for the next page.
PAGE_SIZE = 500
BAD_STATUS = 400
# Of an answer with Retry-After; a longer time is cut to this one.
PATIENCE_S_MAX = 10.0
# A share of that time, so that requests which waited for it do not all arrive at once.
PATIENCE_JITTER = 0.2
APPLY = "application/apply-patch+yaml"
# With a parameter, for the client serializes a body of the bare type itself.
APPLY_CONTENT_TYPE = f"{APPLY}; charset=utf-8"
MERGE = "application/merge-patch+json"
JSON = "application/json"
TOKEN_REVIEW = ResourceKind("authentication.k8s.io/v1", "TokenReview", "tokenreviews")
ACCESS_REVIEW = ResourceKind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews")


class Api:
    """The API server. Every method raises one of `errors.ApiError`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.seen = SeenVersions(loop_time)
        # The API server has asked for no request before this time of the loop's clock.
        self._not_before_s = 0.0

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object:
        """Read one object."""
        return await self._request("GET", kind, kind.path(namespace, name), f"{namespace}/{name}")

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """Read one object; None if it does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except NotFound:
            return None

    async def list(
        self, kind: ResourceKind, namespace: str | None, selector: str = "", fields: str = ""
    ) -> AsyncIterator[Object]:
        """
        Read all objects of a namespace, or of the cluster, page by page, by a label selector and a field selector.

        Raises Outdated before the first object if the list is older than what was seen of the kind when it was asked for.
        """
        newest = self.seen.newest(kind)
        selectors = {"labelSelector": selector, "fieldSelector": fields}
        query = {"limit": str(PAGE_SIZE), **{name: value for name, value in selectors.items() if value}}
        while True:
            page = await self._request(
                "GET", kind, kind.path(namespace, **query), namespace or "of all namespaces"
            )
            # All pages are of the version of the first one.
            version = (page.get("metadata") or {}).get("resourceVersion")
            if version and "continue" not in query and not self.seen.admit(kind, version, newest):
                raise Outdated(
                    f"the API server returned {kind.plural} of version {version}, which is older than {newest} seen before"
                )
            for each in page.get("items") or ():
                yield each
            if not (token := (page.get("metadata") or {}).get("continue")):
                return
            query["continue"] = token

    async def apply(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        fields: Object,
        *,
        force: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        """Server-side apply: own exactly these fields, those that were applied before and are absent now are removed."""
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            **fields,
            "metadata": {**fields.get("metadata", {}), "name": name, "namespace": namespace},
        }
        path = kind.path(namespace, name, fieldManager=manager, force="true" if force else "false")
        return await self._request(
            "PATCH", kind, path, f"{namespace}/{name}", yaml_of(body), APPLY_CONTENT_TYPE
        )

    async def patch(
        self, kind: ResourceKind, namespace: str, name: str, changes: Object, subresource: str = ""
    ) -> Object:
        """Merge patch of an object, or of a subresource; with `metadata.resourceVersion` in it, of that version only."""
        path = kind.path(namespace, name, subresource, fieldManager=FIELD_MANAGER)
        return await self._request("PATCH", kind, path, f"{namespace}/{name}", changes, MERGE)

    async def scale(
        self, kind: ResourceKind, namespace: str, name: str, replicas: int, resource_version: str = ""
    ) -> Object:
        """Set the number of replicas through the scale subresource; with a resource version, of that version only."""
        scale: dict[str, Any] = {
            "apiVersion": SCALE_API_VERSION,
            "kind": "Scale",
            "spec": {"replicas": replicas},
        }
        if resource_version:
            scale["metadata"] = {"resourceVersion": resource_version}
        return await self.patch(kind, namespace, name, scale, "scale")

    async def create(self, kind: ResourceKind, namespace: str, body: Object) -> Object:
        """Create an object."""
        name = str((body.get("metadata") or {}).get("name", ""))
        where = f"{namespace}/{name}"
        return await self._request("POST", kind, kind.path(namespace), where, body)

    async def replace(self, kind: ResourceKind, namespace: str, name: str, body: Object) -> Object:
        """Replace an object; with `metadata.resourceVersion` in it, of that version only."""
        return await self._request("PUT", kind, kind.path(namespace, name), f"{namespace}/{name}", body)

    async def delete(
        self, kind: ResourceKind, namespace: str, name: str, options: Object | None = None
    ) -> None:
        """Delete an object; no error if it does not exist. `options` are DeleteOptions, as in preconditions."""
        path = kind.path(namespace, name)
        try:
            await self._request("DELETE", kind, path, f"{namespace}/{name}", options)
        except NotFound:
            return

    async def review_token(self, token: str, audiences: tuple[str, ...]) -> Object:
        """Ask whose token this is; return the status of a TokenReview."""
        body = {
            "apiVersion": TOKEN_REVIEW.api_version,
            "kind": TOKEN_REVIEW.kind,
            "spec": {"token": token, "audiences": list(audiences)},
        }
        answer = await self._request("POST", TOKEN_REVIEW, TOKEN_REVIEW.path(None), "of a token", body)
        status: Object = answer.get("status") or {}
        return status

    async def review_access(self, spec: Object) -> bool:
        """Ask whether a user has a right; `spec` is that of a SubjectAccessReview."""
        body = {"apiVersion": ACCESS_REVIEW.api_version, "kind": ACCESS_REVIEW.kind, "spec": spec}
        answer = await self._request("POST", ACCESS_REVIEW, ACCESS_REVIEW.path(None), "of a user", body)
        return (answer.get("status") or {}).get("allowed") is True

    async def version(self) -> tuple[int, int]:
        """Return Kubernetes' (major, minor) version."""
        kind = ResourceKind("version", "Version", "version")
        answer = await self._request("GET", kind, "/version", "of the API server")
        # Some distributions append a plus sign to the minor version.
        return int(answer["major"]), int(str(answer["minor"]).rstrip("+"))

    async def connection_info(self, **_: object) -> kopf.ConnectionInfo:
        """Return the client's credentials for kopf, with the token of now: kopf's login handler."""
        configuration = self._client.configuration
        auth = await configuration.auth_settings()
        # Scheme and token; the scheme's case differs between a kubeconfig and a pod.
        value = (auth["BearerToken"]["value"] or "") if "BearerToken" in auth else ""
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            token=value.partition(" ")[2] or None,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def _request(
        self,
        method: str,
        kind: ResourceKind,
        path: str,
        where: str,
        body: Object | bytes | None = None,
        content_type: str = JSON,
    ) -> Object:
        headers: dict[str, Any] = {"Content-Type": content_type, "Accept": JSON}
        await self._await_retry_after(kind)
        try:
            async with asyncio.timeout(REQUEST_S):
                prepared = await self._client.param_serialize(
                    method, path, query_params=[], header_params=headers, auth_settings=["BearerToken"]
                )
                response = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
                    method, prepared[1], headers=prepared[2], body=body, _request_timeout=REQUEST_S
                )
                answer: bytes = await response.read()
        except TimeoutError:
            raise Unavailable(
                f"the API server did not answer the request for {kind.kind} {where} within {REQUEST_S:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the API server cannot be reached ({type(error).__name__})") from None
        if response.status >= BAD_STATUS:
            refusal = error_of(response.status, answer, kind, where)
            if isinstance(refusal, Unavailable):
                self._note_retry_after(response.headers.get("Retry-After", ""))
            raise refusal
        found = parsed(answer)
        version = (found.get("metadata") or {}).get("resourceVersion")
        # A list is noted once it is admitted.
        if version and "items" not in found:
            self.seen.note(kind, version)
        return found

    async def _await_retry_after(self, kind: ResourceKind) -> None:
        """Wait until the API server wants requests again. A Lease is not waited for: its deadline would pass meanwhile."""
        while kind != LEASE and (wait_s := self._not_before_s - loop_time()) > 0:
            await asyncio.sleep(wait_s + random.uniform(0, PATIENCE_JITTER * wait_s))

    def _note_retry_after(self, retry_after: str) -> None:
        """Note how long an overloaded API server asks to wait; anything but seconds, such as a date, is ignored."""
        if retry_after.isdecimal():
            until_s = loop_time() + min(float(retry_after), PATIENCE_S_MAX)
            self._not_before_s = max(self._not_before_s, until_s)


def loop_time() -> float:
    """Return the time of the running loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


def yaml_of(body: Object) -> bytes:
    """
    Serialize an object as JSON that is YAML too: the API server reads applied fields as YAML.

    JSON may have a character beyond U+FFFF as two escapes, which YAML refuses: it is written as itself. The others stay escaped, for
    YAML takes some of them for line breaks.
    """
    text = json.dumps(body, ensure_ascii=False)
    return re.sub("[\x7f-\uffff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def parsed(answer: bytes) -> Mapping[str, Any]:
    """Parse a response. Raises Unavailable for one that is not a JSON object: a proxy answered."""
    try:
        value = json.loads(answer)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unavailable("the API server's response is not JSON; check the address in the kubeconfig")
    return value
