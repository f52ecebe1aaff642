"""The operator's page over groups that a test stages, and an API server that knows some users, their rights, and who leads."""

import base64
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rota_operator.cluster.api import Api
from rota_operator.cluster.page import Leadership, access_of, page_of
from rota_operator.cluster.page_groups import PageGroups
from rota_operator.cluster.queues import Key
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import STABLE, DescribedMember, Description
from rota_operator.overview.offsets import PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import EventKind, GroupView
from rota_operator.page.server import serve_page
from tests.operator.cluster.api_server import Answer, Sent

ORDERS, RETURNS, INVOICES = Key("shop", "orders"), Key("shop", "returns"), Key("billing", "invoices")
KEYS = (INVOICES, ORDERS, RETURNS)
PARTITIONS = 4
START_MS = 1_790_000_000_000
LEADER = "rota-operator-a"
# By user: where it may get ConsumerGroups, as namespace and name; empty: all.
RIGHTS: Mapping[str, Collection[tuple[str, str]]] = {
    "admin": [("", "")],
    "shopkeeper": [("shop", "")],
    "clerk": [("shop", "orders")],
    "stranger": [],
}


class Groups:
    """Watched groups; their coordinator describes two members that share four partitions."""

    def __init__(self, keys: Collection[Key] = KEYS) -> None:
        self.now_ms = START_MS
        self.keys = list(keys)
        self.views = 0
        self.overviews = {key: Overview("rota://rota") for key in keys}
        for key, overview in self.overviews.items():
            overview.add_group("group", f"{key.namespace}.{key.name}", f"{key.namespace}/{key.name}")
            self.stable(key, 1, "a", "b")

    def stable(self, key: Key, generation: int, *names: str) -> None:
        """The coordinator describes a stable group whose members share the partitions."""
        members = [
            DescribedMember(
                f"{name}-id",
                name,
                frozenset(Partition(key.name, number) for number in range(at, PARTITIONS, len(names))),
                host="10.0.0.7",
            )
            for at, name in enumerate(names)
        ]
        found = Description("group", STABLE, generation, "range", members, f"generation {generation}")
        self.overviews[key].update_description(found, self.now_ms, "group")

    def offsets(self, key: Key, committed: int) -> None:
        """The engine reports offsets."""
        found = {
            Partition(key.name, number): PartitionOffsets(committed, 0, 100) for number in range(PARTITIONS)
        }
        self.overviews[key].update_offsets("group", found, self.now_ms)

    def event(self, key: Key, kind: EventKind, message: str) -> None:
        self.overviews[key].record_event("group", kind, message, self.now_ms)

    def view(self, key: Key) -> GroupView | None:
        self.views += 1
        overview = self.overviews.get(key)
        return None if overview is None else overview.group("group", (), self.now_ms)


def answer_of(sent: Sent) -> Answer:
    """Answer reviews by RIGHTS; the token of a user is its name, or a JWT for an audience."""
    if sent.path.endswith("/tokenreviews"):
        return Answer(201, {"status": reviewed(sent.body["spec"])})
    if sent.path.endswith("/subjectaccessreviews"):
        spec = sent.body["spec"]
        asked = spec["resourceAttributes"]
        assert (asked["verb"], asked["group"], asked["resource"]) == ("get", "rota.dev", "consumergroups")
        wanted = (asked.get("namespace", ""), asked.get("name", ""))
        granted = RIGHTS[spec["user"]]
        return Answer(201, {"status": {"allowed": wanted in granted or ("", "") in granted}})
    if "/leases/" in sent.path:
        return Answer(200, {"spec": {"holderIdentity": f"{LEADER}_1234"}})
    return Answer(404)


def reviewed(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Status of a TokenReview."""
    name, _, audience = spec["token"].partition(".")[0].partition("-for-")
    if name not in RIGHTS or spec["audiences"] != ([audience] if audience else []):
        return {"authenticated": False, "error": "unknown token"}
    user = {"username": name, "uid": f"uid-of-{name}", "groups": ["system:authenticated"]}
    return {"authenticated": True, "user": user, "audiences": spec["audiences"]}


def token_for(name: str, audience: str) -> str:
    """A token that a service account has requested for an audience."""
    claims = base64.urlsafe_b64encode(json.dumps({"aud": [audience]}).encode()).decode().rstrip("=")
    return f"{name}-for-{audience}.{claims}.signature"


@asynccontextmanager
async def serving_groups(api: Api, groups: Groups | None, identity: str = LEADER) -> AsyncIterator[str]:
    """Serve the page; without groups, of a process that does not lead. Yields its address."""
    pages = None if groups is None else PageGroups(groups, lambda: groups.now_ms)
    if pages is not None:
        await pages.record_due()

    async def leader() -> str:
        return LEADER

    leadership = Leadership(lambda: pages, leader, identity)
    page = page_of(leadership, access_of(api, lambda: 0.0))
    async with serve_page(page, "127.0.0.1:0") as address:
        yield address
