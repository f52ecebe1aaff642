"""
Many requests to a cluster's API server over several connections: kubectl makes them one after the other.

Called by tests that need hundreds of objects.
"""

import asyncio
import json
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.support.cluster.manifests import Manifest

CONNECTIONS = 8
MERGE = "application/merge-patch+json"
PATHS = {
    "ConsumerGroup": "apis/rota.dev/v1alpha1",
    "Deployment": "apis/apps/v1",
    "StatefulSet": "apis/apps/v1",
}
# Without finalizers an object can be deleted when its operator is gone.
NO_FINALIZERS: Manifest = {"metadata": {"finalizers": None}}


class Request(NamedTuple):
    """A request for one object."""

    method: str
    path: str
    name: str
    body: Manifest
    content_type: str = "application/json"


class Refusal(NamedTuple):
    """A response of the API server that is not a success."""

    status: int
    message: str


def create_all(kubeconfig: Path, namespace: str, manifests: Sequence[Manifest]) -> dict[str, Refusal]:
    """Create objects, with unknown fields refused as by kubectl; return the refusals by name."""
    return asyncio.run(
        _send_all(
            kubeconfig,
            [
                Request(
                    "POST",
                    f"{folder_of(each['kind'], namespace)}?fieldValidation=Strict",
                    each["metadata"]["name"],
                    each,
                )
                for each in manifests
            ],
        )
    )


def remove_finalizers(kubeconfig: Path, namespace: str, kind: str, names: Sequence[str]) -> None:
    """Remove the finalizers of objects. Raises AssertionError for one that is not there."""
    folder = folder_of(kind, namespace)
    requests = [Request("PATCH", f"{folder}/{name}", name, NO_FINALIZERS, MERGE) for name in names]
    assert asyncio.run(_send_all(kubeconfig, requests)) == {}


def folder_of(kind: str, namespace: str) -> str:
    """Return the path of a namespace's objects of one kind."""
    return f"{PATHS[kind]}/namespaces/{namespace}/{kind.lower()}s"


async def _send_all(kubeconfig: Path, requests: Sequence[Request]) -> dict[str, Refusal]:
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    refusals: dict[str, Refusal] = {}
    left = iter(requests)

    async def send(session: aiohttp.ClientSession) -> None:
        for each in left:
            headers, url = {"Content-Type": each.content_type}, f"{cluster['server']}/{each.path}"
            async with session.request(each.method, url, json=each.body, headers=headers) as answer:
                body: Any = await answer.json()
            if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
                refusals[each.name] = Refusal(answer.status, str(body.get("message")))

    connector = aiohttp.TCPConnector(ssl=tls, limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTIONS):
            tasks.create_task(send(session))
    return refusals
