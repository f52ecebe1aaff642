"""A Deployment of dynamic members without a cluster: real sidecars with their applications, the operator's Fleet, and a list of pods."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import SettingsOrders
from rota_operator.cluster.succession_orders import SuccessionOrders, SuccessionPorts
from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_operator.reconcile.successions import MemberPool
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, serving
from tests.support.app import App
from tests.support.sidecar import Deliverer

WITHIN_S = 60
KEY, HASH = Key("shop", "orders"), "hash"
SESSION_MS = 300_000
# Each pod has some of them.
PARTITIONS = 4
FOR_MS = 600_000


@dataclass
class Pod:
    """One pod: its object, sidecar and application, and the last report."""

    body: dict[str, Any]
    sidecar: Deliverer
    app: App
    report: pb.SidecarReport = field(default_factory=pb.SidecarReport)
    # It has answered an order of the operator that leads.
    is_ordered: bool = False

    @property
    def is_member(self) -> bool:
        return self.report.member.state == pb.MEMBER_STATE_STABLE and bool(self.report.partitions)


@dataclass
class Deployment:
    """The pods, and the operator that leads."""

    folder: Path
    servers: str
    topic: str
    flags: Sequence[str] = ()
    pods: dict[str, Pod] = field(default_factory=dict)
    apps: list[App] = field(default_factory=list)
    fleet: str = "127.0.0.1:0"
    answered: set[int] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @asynccontextmanager
    async def operator(self, replicas: int) -> AsyncIterator[None]:
        """One life of the operator."""
        for pod in self.pods.values():
            pod.is_ordered = False
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(serving(ApiServer(self._answer)))

            def opened(principal: Principal) -> None:
                settings.opened(principal)

            callbacks = FleetCallbacks(
                self._authenticate,
                lambda principal, report: self._on_report(principal, report, settings, successions),
                on_opened=opened,
            )
            server = FleetServer(callbacks, order_ids(secrets.randbits(64)))
            settings = SettingsOrders(server, print, lambda _: False)
            loop = asyncio.get_running_loop()
            clocks = ProcessClocks(lambda: 0, loop.time)
            successions = SuccessionOrders(api, SuccessionPorts(server, clocks, print))
            settings.configure(KEY, "{}", HASH, orders_join=True)
            resource = {"metadata": {"namespace": "shop", "name": "orders", "uid": "uid-group"}}
            successions.offer(KEY, resource, MemberPool(replicas, SESSION_MS))
            self.fleet = await stack.enter_async_context(serve_fleet(server, self.fleet))
            running = [asyncio.ensure_future(each.run()) for each in (settings, successions)]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                await asyncio.wait(running)

    async def start(self, name: str) -> Pod:
        """Start a pod, and wait until it is Ready."""
        metadata = {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:00:{len(self.apps):02}Z",
        }
        token = self.folder / f"{name}-token"
        token.write_text(name)
        sidecar = Deliverer(
            self.folder,
            self.servers,
            self.topic,
            (
                f"--topics={self.topic}",
                f"--fleet={self.fleet}",
                f"--fleet-token-file={token}",
                f"--settings-hash={HASH}",
                f"--client-id={name}",
                f"--state-folder={self.folder}/{name}-state",
                f"--session-timeout-ms={SESSION_MS}",
                *self.flags,
            ),
            name=name,
        )
        app = App(self.folder, sidecar.address, ["--pause-ms=1", "--credit=20"], name=f"app-{name}")
        self.apps.append(app)
        self.pods[name] = Pod({"metadata": metadata, "status": {"phase": "Running"}}, sidecar, app)
        await asyncio.to_thread(sidecar.start)
        await asyncio.to_thread(app.start)
        await self.wait_until(lambda: self.pods[name].report.member.ready)
        return self.pods[name]

    async def delete(self, name: str) -> None:
        """Delete a pod as a kubelet does: both hooks, SIGTERM to the application, then to the sidecar."""
        pod = self.pods[name]
        pod.body["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        assert (await asyncio.to_thread(pod.sidecar.drain, f"for_ms={FOR_MS}"))[0] == HTTPStatus.OK
        assert await asyncio.to_thread(pod.app.terminate) == 0
        assert await asyncio.to_thread(pod.sidecar.terminate) == 0
        del self.pods[name]
        await asyncio.to_thread(pod.sidecar.close)

    async def are_members(self) -> None:
        """Wait until each pod is a member, and all partitions have an owner."""
        await self.wait_until(
            lambda: (
                all(each.is_member for each in self.pods.values())
                and sum(len(each.report.partitions) for each in self.pods.values()) == PARTITIONS
            )
        )

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return as soon as that holds; it is looked at after each report."""
        async with asyncio.timeout(WITHIN_S), self.changed:
            await self.changed.wait_for(holds)

    @property
    def done(self) -> list[tuple[str, int, int]]:
        """All that the applications are done with, repetitions included."""
        return sorted(each for app in self.apps for each in app.done)

    def close(self) -> None:
        for pod in self.pods.values():
            pod.app.stop()
            pod.sidecar.close()

    async def _authenticate(self, token: str) -> Principal:
        return Principal(SidecarRef("shop", token), self.topic, f"uid-{token}", f"{KEY.namespace}/{KEY.name}")

    def _on_report(
        self,
        principal: Principal,
        report: pb.SidecarReport,
        settings: SettingsOrders,
        successions: SuccessionOrders,
    ) -> None:
        settings.reported(principal, report)
        successions.reported(principal, report.member)
        if (pod := self.pods.get(principal.sidecar.pod)) is not None:
            pod.report = report
            # On a new stream the answers to the former operator come again.
            answered = {each.order_id for each in report.answers}
            pod.is_ordered |= not answered <= self.answered
            self.answered |= answered
        task = asyncio.ensure_future(self._notify())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def _answer(self, sent: Sent) -> Answer:
        return Answer(200, {"items": [each.body for each in self.pods.values()]})


async def rolls_out(deployment: Deployment, records: int) -> None:
    """Two pods are replaced one after the other; the second one after the operator was replaced too."""
    generations = set()
    try:
        async with deployment.operator(2):
            await deployment.start("a")
            await deployment.start("b")
            await deployment.are_members()
            generation = deployment.pods["a"].report.member.generation_id
            member_ids = {each.report.member.member_id for each in deployment.pods.values()}
            surplus = await deployment.start("c")
            assert surplus.report.member.awaits_join
            await deployment.delete("a")
            await deployment.are_members()
            await deployment.start("d")
        async with deployment.operator(2):
            await deployment.wait_until(lambda: all(each.is_ordered for each in deployment.pods.values()))
            await deployment.wait_until(lambda: deployment.pods["d"].report.member.awaits_join)
            await deployment.delete("b")
            await deployment.are_members()
            generations = {each.report.member.generation_id for each in deployment.pods.values()}
            assert {each.report.member.member_id for each in deployment.pods.values()} == member_ids
            assert generations == {generation}, "no rebalance"
            app = deployment.apps[-1]
            await asyncio.to_thread(app.wait_until, lambda: len(deployment.done) >= PARTITIONS * records)
            everything = [
                (deployment.topic, number, offset)
                for number in range(PARTITIONS)
                for offset in range(records)
            ]
            assert deployment.done == everything, "nothing is lost or repeated"
    finally:
        await asyncio.to_thread(deployment.close)
