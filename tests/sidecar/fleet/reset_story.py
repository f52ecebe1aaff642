"""The operator's resets with real sidecars over real Fleet streams, on any engine; the API server alone is in memory."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rota_operator.cluster.channels import Channels
from rota_operator.cluster.event_recorder import Fact
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.kafka_access import NO_ACCESS, KafkaAccess
from rota_operator.cluster.kinds import CONFIG_MAP, CONSUMER_GROUP
from rota_operator.cluster.offset_resets import OffsetResets, ResetPorts
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reset_execution import ExecutionPorts, ResetExecution
from rota_operator.cluster.reset_lookups import OffsetSources
from rota_operator.cluster.reset_plans import ResetPlans
from rota_operator.cluster.settings_orders import SettingsOrders, key_of
from rota_operator.cluster.watched import watched_of
from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.strategy import offer
from rota_operator.resets.machine import is_suspending
from rota_operator.spec.validation import parse_spec
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.reset_world import Kills, Objects
from tests.support.sidecar import Deliverer

KEY = Key("shop", "orders")
WITHIN_S = 60
TERMINAL = ("Rejected", "Planned", "Completed", "Failed")
PODS = ("a", "b")


class Operator:
    """One ConsumerGroup, whose group has the name of its topic."""

    def __init__(self, servers: str, topic: str, access: KafkaAccess = NO_ACCESS) -> None:
        self.topic = topic
        self.kills = Kills()
        self.objects = Objects(self.kills)
        self.sidecars: dict[str, Deliverer] = {}
        # Read by sidecars when they start; None: by none.
        self.settings: Path | None = None
        self.events: list[Fact] = []
        # Of the spec; empty: that of `offered`, which the settings have.
        self.strategy = ""
        self.offered: tuple[str, ...] = ("cooperative-sticky",)
        spec = {
            "bootstrapServers": [servers],
            "topics": [topic],
            "scaleTargetRef": {"name": "orders"},
            "offsets": {},
        }
        self.objects.held[CONSUMER_GROUP.kind, KEY.name] = {
            "metadata": {"namespace": "shop", "name": "orders", "uid": "u-1", "resourceVersion": "1", "generation": 1},
            "spec": spec,
            "status": {"observedGeneration": 1, "groupId": topic},
        }  # fmt: skip
        self.changed = asyncio.Event()
        self.groups = GroupWatches(
            Channels(lambda: None, insecure=True),
            GroupCallbacks(self._note, self._note, self._note, self._raise),
            lambda: time.time_ns() // 1_000_000,
        )
        self.groups.add(KEY, watched_of(parse_spec(spec), topic, access))
        callbacks = FleetCallbacks(self._authenticate, self._on_report, on_opened=self._on_opened)
        self.fleet = FleetServer(callbacks, order_ids(100))
        self.orders = SettingsOrders(self.fleet, lambda text: None, self._is_resetting)
        self.begin_life()
        self.reconcile()

    def begin_life(self) -> None:
        """Replace the part that resets by one that knows nothing."""
        access, plans = self.groups.reset_access, ResetPlans(self.objects, str)
        source = OffsetSources(self.fleet, access).open
        ports = ResetPorts(
            self.objects, lambda: time.time_ns() // 1_000_000, self._written,
            lambda resource, fact: self.events.append(fact), lambda text: None, self._raise,
        )  # fmt: skip
        self.resets = OffsetResets(
            ports, ResetExecution(ExecutionPorts(self.objects, self.fleet, access, source), plans)
        )

    @property
    def resource(self) -> Any:  # noqa: ANN401  as it is stored
        return self.objects.held[CONSUMER_GROUP.kind, KEY.name]

    @property
    def record(self) -> Any:  # noqa: ANN401  as it is stored
        return self.resource["status"].get("offsetReset", {})

    def plan(self, name: str) -> dict[int, tuple[str, str]]:
        """Return old and new offset by partition."""
        table = self.objects.held[CONFIG_MAP.kind, name]["data"]["plan.csv"].splitlines()[1:]
        return {int(row[1]): (row[2], row[3]) for row in (line.split(",") for line in table)}

    def reconcile(self) -> None:
        """Write the settings that pods read when they start, and order them from those that run."""
        suspend = is_suspending(self.resource["status"])
        if self.strategy:
            offered = offer((self.strategy,), self.offered, self.groups.strategies(KEY), has_pods=True)
            self.offered = offered.names
        settings = json.dumps({"suspend": suspend, "assignment": {"strategy": ",".join(self.offered)}})
        self.objects.held[CONFIG_MAP.kind, "rota-orders"] = {"data": {"settings.json": settings}}
        self.orders.configure(KEY, settings, "")
        if self.settings is not None:
            self.settings.write_text(settings)

    def request(self, request_id: str, *, dry_run: bool, **to: object) -> None:
        """Edit the spec."""
        self.resource["spec"]["offsets"]["reset"] = {"requestId": request_id, "dryRun": dry_run, "to": to}
        self.resource["metadata"]["generation"] += 1
        self.resets.decided(KEY, self.resource, is_accepted=True)

    async def reset(self, request_id: str, *, dry_run: bool = False, lives: int = 1, **to: object) -> str:
        """Request a reset, and step until it has ended, each step in a new life if there are several; returns the phase."""
        self.request(request_id, dry_run=dry_run, **to)
        while (self.record.get("requestId"), self.record.get("dryRun")) != (
            request_id,
            dry_run,
        ) or self.record["phase"] not in TERMINAL:
            if lives > 1:
                self.begin_life()
            await self.step()
        return str(self.record["phase"])

    async def step(self) -> None:
        """Perform one step; one that changes nothing waits for what the group says next."""
        self.resets.decided(KEY, self.resource, is_accepted=True)
        self.changed.clear()
        before = self.record.get("phase")
        await self.resets.step(KEY)
        if self.record.get("phase") == before:
            await self.changed.wait()

    async def until_owned(self) -> None:
        """Wait until both partitions have an owner that reports them in the newest generation, with what is committed."""

        def is_owned() -> bool:
            access = self.groups.reset_access(KEY)
            reports = () if access is None else tuple(access.reports.values())
            stable = [each for each in reports if each.member.state == pb.MEMBER_STATE_STABLE]
            generations = {each.member.generation_id for each in stable}
            return (
                len(stable) == len(PODS)
                and len(generations) == 1
                and all(len(each.partitions) for each in stable)
                and all(part.HasField("committed") for each in stable for part in each.partitions)
            )

        while not is_owned():
            self.changed.clear()
            await self.changed.wait()

    async def until_resumed(self) -> None:
        """Wait until no sidecar reports that it is suspended."""
        while any(self.suspended()):
            self.changed.clear()
            await self.changed.wait()

    def suspended(self) -> Sequence[bool]:
        """Return what the sidecars report."""
        access = self.groups.reset_access(KEY)
        return () if access is None else [each.member.suspended for each in access.reports.values()]

    async def _authenticate(self, token: str) -> Principal:
        return Principal(SidecarRef("shop", token), self.topic, token, "shop/orders")

    def _on_opened(self, principal: Principal) -> None:
        self.orders.opened(principal)

    def _on_report(self, principal: Principal, report: pb.SidecarReport) -> None:
        self.groups.add_report(key_of(principal), report)
        self.orders.reported(principal, report)
        self.changed.set()

    def _is_resetting(self, key: Key) -> bool:
        return self.resets.is_active(key)

    def _written(self, key: Key, resource: Object) -> None:
        self.reconcile()

    def _note(self, key: Key) -> None:
        self.changed.set()

    def _raise(self, error: Exception) -> None:
        raise error


@asynccontextmanager
async def operated(
    folder: Path, servers: str, topic: str, within_s: float = WITHIN_S
) -> AsyncIterator[Operator]:
    """Two sidecars that share the topic's two partitions, and their operator."""
    operator = Operator(servers, topic)
    operator.settings = folder / "settings.json"
    operator.reconcile()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(operator.groups.close)
        await stack.enter_async_context(asyncio.timeout(within_s))
        address = await stack.enter_async_context(serve_fleet(operator.fleet, "127.0.0.1:0"))
        for name in PODS:
            token = folder / f"{name}.token"
            token.write_text(name)
            flags = (
                f"--topics={topic}",
                f"--fleet={address}",
                f"--fleet-token-file={token}",
                f"--client-id={name}",
                f"--settings={operator.settings}",
                f"--state-folder={folder / f'{name}.state'}",
            )
            sidecar = operator.sidecars[name] = Deliverer(folder, servers, topic, flags, name=name)
            await asyncio.to_thread(sidecar.start)
            stack.push_async_callback(asyncio.to_thread, sidecar.close)
        await operator.until_owned()
        orders = asyncio.ensure_future(operator.orders.run())
        try:
            yield operator
        finally:
            orders.cancel()


async def replay(operator: Operator, records: int) -> None:
    """Plan, execute and undo a reset of partitions with so many records each."""
    assert await operator.reset("replay-1", dry_run=True, latest=True) == "Planned"
    name = operator.record["planConfigMap"]
    assert operator.plan(name) == {number: ("0", str(records)) for number in range(2)}
    assert (operator.record["skippedRecords"], operator.record["repeatedRecords"]) == (2 * records, 0)

    assert await operator.reset("replay-1", latest=True) == "Completed"
    undo = operator.record["undoConfigMap"]
    assert operator.plan(undo) == {number: (str(records), "0") for number in range(2)}
    assert not any(operator.suspended())

    # Each step of the undo is made by another life of the operator.
    assert await operator.reset("back", lives=2, fromConfigMap=undo) == "Completed"
    assert operator.plan(operator.record["planConfigMap"]) == {
        number: (str(records), "0") for number in range(2)
    }
    assert await operator.reset("look", dry_run=True, earliest=True) == "Planned"
    assert operator.plan(operator.record["planConfigMap"]) == dict.fromkeys(range(2), ("0", "0"))
    assert not any(operator.suspended())
