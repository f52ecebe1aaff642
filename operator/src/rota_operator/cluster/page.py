"""
The operator's web page: read-only, on loopback, to readers whose token the API server has reviewed, of the groups that they may `get`.

Served by `process` for as long as it runs. Only the leader knows the groups; another process says who leads. `kubectl rota ui` forwards
a local port to the leader's pod and sends the token.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from rota_operator.cluster.api import Api
from rota_operator.cluster.config import ClusterConfig
from rota_operator.cluster.errors import ApiError
from rota_operator.cluster.kinds import LEASE
from rota_operator.cluster.page_access import AccessPorts, PageAccess
from rota_operator.cluster.page_groups import PageGroups, VisibleGroups
from rota_operator.page.server import OpenSource, PageServer, PageSource, Refused


class Leadership(NamedTuple):
    """The process's terms, as far as the page needs them."""

    # None: this process does not lead.
    groups: Callable[[], PageGroups | None]
    # Returns who leads, as a name of a pod; empty: it is not known.
    leader: Callable[[], Awaitable[str]]
    # Name of this process.
    identity: str


def page_of(leadership: Leadership, access: PageAccess) -> PageServer:
    """Return the page."""
    return PageServer(source_of(leadership, access), {})


def source_of(leadership: Leadership, access: PageAccess) -> OpenSource:
    """Return what opens the groups that the reader of a request may see."""

    async def open_source(request: web.Request) -> PageSource:
        # Before anything is read.
        reader = await access.authenticate(request.headers.get("Authorization", ""))
        groups = leadership.groups()
        if groups is None:
            leader = await leadership.leader()
            where = f"{leader} does; run `kubectl rota ui` again" if leader else "nor does another one yet"
            raise Refused(503, f"{leadership.identity} does not lead, {where}")
        keys = await access.visible(reader, groups.keys, request.query.get("namespace", ""))
        return VisibleGroups(groups, f"{leadership.identity}, read-only for {reader.name}", keys)

    return open_source


def access_of(api: Api, monotonic_s: Callable[[], float]) -> PageAccess:
    """Return the access of readers, by reviews of the API server."""
    return PageAccess(AccessPorts(api.review_token, api.review_access, monotonic_s))


async def leader_of(api: Api, config: ClusterConfig) -> str:
    """Return the name of the pod that holds the Lease; empty: none does, or it cannot be read."""
    try:
        lease = await api.find(LEASE, config.lease_namespace, config.lease_name)
    except ApiError:
        return ""
    # Identities are a name and an id for each term.
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "").rpartition("_")[0]
