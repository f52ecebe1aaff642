"""
An API server in memory, over HTTP: as much of it as the operator's process needs of a namespace that a test fills.

It serves discovery, lists, watches, merge patches, server-side apply and TokenReviews, in a thread; conflicts
by version are those of a real one. There are no controllers, and pods are what the test says.
"""

import asyncio
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from rota_operator.cluster.kinds import POD, WORKLOADS, ResourceKind
from rota_operator.reconcile.ownership import managed_fields
from rota_service.pod_tokens import AUDIENCE, POD_NAME, POD_UID
from tests.operator.cluster.reset_world import merge
from tests.operator.cluster.test_watches import KINDS, discovery_of
from tests.operator.reconcile.api_server import Stored
from tests.support import applications
from tests.support.loops import run_in_thread

Json = Any
WITHIN_S = 60
PATH = re.compile(
    r"/(?:apis/[^/]+/[^/]+|api/v1)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
VERSION = {"major": "1", "minor": "35"}
MANAGER = "rota"
WORKLOAD_PLURALS = frozenset(kind.plural for kind in WORKLOADS)
TERM = re.compile(r"([^=, ]+)(?:=([^,]*)| in \(([^)]*)\))?")


class Id(NamedTuple):
    """Identifies an object."""

    plural: str
    namespace: str
    name: str


class Refusal(Exception):
    """A request that is answered with a Status."""

    def __init__(self, code: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Kubernetes:
    """Objects by kind, namespace and name. Invariant: used on the loop of its thread only; `put` and `change` call it there."""

    def __init__(self) -> None:
        self._discovery = discovery_of((*KINDS, POD))
        self._objects: dict[Id, Json] = {}
        # Workloads have field managers; both hold the same values.
        self._stored: dict[Id, Stored] = {}
        self._version = 1_000
        # Watch events in order, with the kind of their object.
        self._events: list[tuple[str, Json]] = []
        self._changed = asyncio.Event()
        self._ends = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self.address = ""

    def put(self, kind: ResourceKind, namespace: str, body: Json) -> Json:
        """Create an object; returns it."""
        return self._call(lambda: self._create(Id(kind.plural, namespace, body["metadata"]["name"]), body))

    def change(self, kind: ResourceKind, namespace: str, name: str, changes: Json) -> None:
        """Apply a JSON merge patch, as the object's owner."""
        self._call(lambda: self._patch(Id(kind.plural, namespace, name), changes))

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Json:
        """Return a copy of an object."""
        return self._call(lambda: copy.deepcopy(self._objects[Id(kind.plural, namespace, name)]))

    def _call(self, work: Callable[[], Json]) -> Json:
        done: Future[Json] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001  raised in the caller's thread
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(WITHIN_S)

    # ------------------------------------------------------------------------------------ requests

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if (found := self._discovery.get(request.path)) is not None:
            return web.json_response(found)
        if request.path == "/version":
            return web.json_response(VERSION)
        body = json.loads(text) if (text := await request.text()) else None
        if request.path.endswith("/tokenreviews"):
            return web.json_response(self._review(body), status=HTTPStatus.CREATED)
        match = PATH.fullmatch(request.path)
        # The last two kinds that a client looks for are the cluster's own.
        parts = match.groupdict() if match else {"namespace": "", "plural": request.path.rpartition("/")[2]}
        if "watch" in request.query:
            return await self._watch(request, parts)
        try:
            return web.json_response(self._answer(request, parts, body))
        except Refusal as refusal:
            status = {
                "kind": "Status", "status": "Failure", "reason": refusal.reason, "message": str(refusal),
                "code": refusal.code,
            }  # fmt: skip
            return web.json_response(status, status=refusal.code)

    def _answer(self, request: web.Request, parts: Mapping[str, Any], body: Json) -> Json:
        if not parts.get("name"):
            if request.method == "GET":
                return self._list(parts, request.query.get("labelSelector", ""))
            name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self._version}"
            return self._create(Id(parts["plural"], parts["namespace"], name), body)
        of = Id(parts["plural"], parts["namespace"], parts["name"])
        if request.method == "PATCH" and "apply-patch" in request.content_type:
            return self._apply(of, body)
        if of not in self._objects:
            raise Refusal(HTTPStatus.NOT_FOUND, "NotFound", f"{of.plural} {of.name} not found")
        match request.method:
            case "GET":
                return self._objects[of]
            case "PATCH":
                return self._patch(of, body)
            case "DELETE":
                return self._publish(of, "DELETED", self._objects.pop(of))
            case method:
                raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", method)

    def _list(self, parts: Mapping[str, Any], selector: str) -> Json:
        found = [
            each
            for of, each in self._objects.items()
            if (of.plural, of.namespace) == (parts["plural"], parts["namespace"]) and fits(each, selector)
        ]
        return {"items": found, "metadata": {"resourceVersion": str(self._version)}}

    async def _watch(self, request: web.Request, parts: Mapping[str, Any]) -> web.StreamResponse:
        """Send the events since a version, and those that follow, until the server ends."""
        response = web.StreamResponse()
        await response.prepare(request)
        since, sent = int(request.query.get("resourceVersion", "0")), 0
        while not self._ends.is_set():
            changed, selector = self._changed, request.query.get("labelSelector", "")
            for plural, event in self._events[sent:]:
                found = event["object"]
                if (
                    plural == parts["plural"]
                    and int(found["metadata"]["resourceVersion"]) > since
                    and fits(found, selector)
                ):
                    await response.write(json.dumps(event).encode() + b"\n")
            sent = len(self._events) if changed is self._changed else sent
            await changed.wait()
        return response

    def _review(self, review: Json) -> Json:
        """Answer a TokenReview: a token of a test is the name of its pod."""
        namespace, _, name = review["spec"]["token"].partition("/")
        pod = self._objects.get(Id(POD.plural, namespace, name))
        if pod is None:
            return {"status": {"error": "unknown token"}}
        user = {
            "username": f"system:serviceaccount:{namespace}:default",
            "extra": {POD_NAME: [name], POD_UID: [pod["metadata"]["uid"]]},
        }
        return {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": user}}

    # ------------------------------------------------------------------------------------ changes

    def _create(self, of: Id, body: Json) -> Json:
        if of in self._objects:
            raise Refusal(HTTPStatus.CONFLICT, "AlreadyExists", f"{of.plural} {of.name} already exists")
        found = copy.deepcopy(body)
        found["metadata"] |= {"namespace": of.namespace, "name": of.name}
        found["metadata"].setdefault("uid", f"uid-of-{of.plural}-{of.name}")
        if of.plural in WORKLOAD_PLURALS:
            self._stored[of] = Stored(found)
            found = self._stored[of].live
        return self._publish(of, "ADDED", found)

    def _patch(self, of: Id, changes: Json) -> Json:
        """Apply a JSON merge patch; one of the spec makes a new generation."""
        found = copy.deepcopy(self._objects[of])
        self._check_version(of, changes)
        was = copy.deepcopy(found.get("spec"))
        merge(found, copy.deepcopy(changes))
        if "generation" in found["metadata"] and found.get("spec") != was:
            found["metadata"]["generation"] += 1
        return self._publish(of, "MODIFIED", found)

    def _apply(self, of: Id, body: Json) -> Json:
        self._check_version(of, body)
        wanted = copy.deepcopy(body)
        wanted["metadata"].pop("resourceVersion", None)
        was = self._objects.get(of)
        if of.plural in WORKLOAD_PLURALS:
            # Workloads of a test have no field that another manager has with another value.
            self._stored[of].apply(wanted)
            wanted = self._stored[of].live
        else:
            uid = f"uid-of-{of.plural}-{of.name}" if was is None else was["metadata"]["uid"]
            owned = {"manager": MANAGER, "operation": "Apply", "fieldsV1": managed_fields(body)}
            wanted["metadata"] |= {"uid": uid, "managedFields": [owned]}
        return self._publish(of, "ADDED" if was is None else "MODIFIED", wanted)

    def _check_version(self, of: Id, changes: Json) -> None:
        """Refuse a change that was decided on another version."""
        expected = (changes.get("metadata") or {}).get("resourceVersion")
        if expected and expected != self._objects[of]["metadata"]["resourceVersion"]:
            raise Refusal(HTTPStatus.CONFLICT, "Conflict", "the object has been modified")

    def _publish(self, of: Id, event: str, found: Json) -> Json:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        if event != "DELETED":
            self._objects[of] = found
        self._events.append((of.plural, {"type": event, "object": copy.deepcopy(found)}))
        self._changed.set()
        self._changed = asyncio.Event()
        return copy.deepcopy(found)

    # ------------------------------------------------------------------------------------ its life

    async def _serve(self, started: "Future[str]") -> None:
        async with applications.serving(self.handle) as address:
            started.set_result(address)
            await self._ends.wait()
            self._changed.set()

    @contextmanager
    def serving(self) -> Iterator["Kubernetes"]:
        """Serve on a free port within the block."""
        started: Future[str] = Future()
        thread = run_in_thread(self._loop, self._serve(started))
        try:
            self.address = started.result(WITHIN_S)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._ends.set)
            thread.join(WITHIN_S)

    def write_kubeconfig(self, file: Path) -> Path:
        """Write a kubeconfig without credentials."""
        named = {"name": "test", "cluster": {"server": self.address}}
        context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "test", "clusters": [named],
                    "contexts": [context], "users": [{"name": "test", "user": {}}],
                }
            )
        )  # fmt: skip
        return file


def fits(found: Json, selector: str) -> bool:
    """Return whether an object's labels fit a label selector: `a`, `a=b` and `a in (b,c)`."""
    labels = found["metadata"].get("labels") or {}
    return all(
        label in labels and (not (one or several) or labels[label] in (one, *several.split(",")))
        for label, one, several in TERM.findall(selector)
    )
