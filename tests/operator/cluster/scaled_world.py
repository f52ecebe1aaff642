"""One group that Rota scales, without a cluster: its workload and pods, its load, and everything its autoscaler does. For tests."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from rota_operator.autoscaling.decision import Decision
from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError
from rota_operator.cluster.event_recorder import Fact
from rota_operator.cluster.group_autoscaler import AutoscalerPorts, GroupAutoscaler, Reading, Subject
from rota_operator.cluster.kinds import POD, ResourceKind
from rota_operator.cluster.queues import Key
from rota_operator.fleet.principal import SidecarRef
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.scaling import DELETION_COST, scale_target_of
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.status import Scaling
from rota_operator.spec.validation import parse_spec
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.status.groups import group, member, partition

Json = Any
KEY, UID = Key("shop", "orders"), "11-22"
AT_MS, POLL_MS = 1_700_000_000_000, 10_000
WITHIN_S = 60
# Of a replica that is busy, in records per second.
SERVICE_RATE = 10.0
PARTITIONS = 4


def spec_of(**autoscaling: Json) -> ConsumerGroupSpec:
    """A spec with an autoscaler that changes the number at any time."""
    fields = {
        "enabled": True,
        "targetUtilization": 1.0,
        "partitionAlignment": "off",
        "minChangeIntervalSeconds": 0,
        **autoscaling,
    }
    return parse_spec(
        {
            "bootstrapServers": ["rota://rota:7070"],
            "topics": ["orders"],
            "scaleTargetRef": {"name": "orders"},
            "autoscaling": fields,
        }
    )


class ScaledWorld:
    """
    A Deployment or StatefulSet; its pods are members of the group, and own partitions in turn.

    It stands for the API server as far as the autoscaler uses it.
    """

    def __init__(self, replicas: int, kind: str = "Deployment", **autoscaling: Json) -> None:
        self.spec = spec_of(**autoscaling)
        self.version = 1
        self.workload: Json = {
            "kind": kind,
            "metadata": {"name": "orders", "generation": 1},
            "spec": {"replicas": replicas},
            "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas},
        }
        names = [
            f"orders-{number}" if kind == "StatefulSet" else f"orders-{number}x" for number in range(replicas)
        ]
        self.pods: dict[str, Json] = {name: {"metadata": {"name": name}} for name in names}
        self.owners = [names[number % replicas] for number in range(PARTITIONS)]
        self.arrival_rate = 0.0
        # Of partition 0, in addition.
        self.hot_rate = 0.0
        self.ends = [0.0] * PARTITIONS
        self.now_ms = AT_MS
        self.is_recorded = True
        self.is_silent = False
        self.is_watched = True
        # What is to be different in the view.
        self._view: Json = {}
        # Everything that was done, in order.
        self.acts: list[str] = []
        self.recorded: list[Fact] = []
        self.decisions: list[Decision] = []
        self.exceptions: list[Exception] = []
        # Answers to drains: an error, or none. A future that is not done delays them.
        self.drained: Awaitable[str] | None = None
        # Pods that report that their member leads the group, and the answers to orders to rebalance; no error, if there is none.
        self.leaders: tuple[str, ...] = ()
        self.rebalance_errors: dict[str, str] = {}
        # What the next changes of the number are refused with.
        self.failures: list[ApiError] = []
        # What the next lists of pods are refused with.
        self.unlisted: list[ApiError] = []
        self.autoscaler = self.start()

    def start(self, former: Scaling = Scaling()) -> GroupAutoscaler:  # noqa: B008  an immutable value
        """A life of the operator."""
        ports = AutoscalerPorts(
            cast(Api, self), lambda: self.now_ms, self._read, self._order, lambda _: self.is_recorded,
            lambda _, decision: self.decisions.append(decision), lambda _: None,
            lambda _, fact: self.recorded.append(fact), self.exceptions.append,
        )  # fmt: skip
        self.autoscaler = GroupAutoscaler(KEY, ports, self.subject(), former)
        return self.autoscaler

    def subject(self) -> Subject:
        """The group and its workload, as a reconcile reads them now."""
        return Subject(UID, self.spec, scale_target_of(self._versioned()))

    @property
    def replicas(self) -> int:
        return int(self.workload["spec"]["replicas"])

    def put_replicas(self, replicas: int) -> None:
        """Another client scales the workload."""
        self.workload["spec"]["replicas"] = replicas
        self.version += 1

    def begin_rollout(self) -> None:
        """The workload gets another template."""
        self.workload["metadata"]["generation"] += 1
        self.version += 1

    async def poll(self, count: int = 1, **view: Json) -> None:
        """Poll, with a reconcile before each, and wait for what that begins, unless it waits for a drain."""
        for _ in range(count):
            self.now_ms += POLL_MS
            self.ends = [each + self.arrival_rate / PARTITIONS * POLL_MS / 1000 for each in self.ends]
            self.ends[0] += self.hot_rate * POLL_MS / 1000
            self._view = view
            self.autoscaler.update(self.subject())
            self.autoscaler.poll()
            await self.settle()

    async def settle(self) -> None:
        """Let everything run that does not wait."""
        for _ in range(50):
            await asyncio.sleep(0)

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run a story; no unexpected exception may occur in it."""

        async def bounded() -> None:
            async with asyncio.timeout(WITHIN_S):
                await story()
            self.autoscaler.close()

        asyncio.run(bounded())
        assert self.exceptions == []

    def said(self, reason: str) -> list[str]:
        """Messages of the Events with this reason."""
        return [each.message for each in self.recorded if each.reason == reason]

    # ------------------------------------------------------------------ what the autoscaler sees

    def _read(self, key: Key, spec: ConsumerGroupSpec) -> Reading | None:
        assert (key, spec) == (KEY, self.spec)
        if not self.is_watched:
            return None
        done_s = (self.now_ms - AT_MS) / 1000
        names = [] if self.is_silent else [*self.pods]
        reports = {
            name: pb.SidecarReport(
                sidecar=name,
                member=pb.MemberReport(
                    records_done=int(done_s * SERVICE_RATE), busy_seconds=done_s, leads=name in self.leaders
                ),
            )
            for name in names
        }
        return Reading(self._group(), reports)

    def _group(self) -> GroupView:
        members = tuple(
            member(name, partitions=self._owned(name), state="Unknown" if self.is_silent else "Stable")
            for name in self.pods
        )
        partitions = tuple(
            partition(number, owner=self.owners[number], end=int(end), lag_records=0, lag_seconds=0.0)
            for number, end in enumerate(self.ends)
        )
        given = {"members": members, "partitions": partitions, **self._view}
        return replace(group(), **given)

    def _owned(self, name: str) -> tuple[str, ...]:
        return tuple(f"orders-{number}" for number, owner in enumerate(self.owners) if owner == name)

    # --------------------------------------------------------------- what the autoscaler asks for

    async def _order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        if order.WhichOneof("order") == "rebalance":
            self.acts.append(f"rebalance {sidecar.pod}: {order.rebalance.reason}")
            return pb.OrderAnswer(error=self.rebalance_errors.get(sidecar.pod, ""))
        assert (order.WhichOneof("order"), order.drain.within_ms) == ("drain", int(within_s * 1000))
        self.acts.append(f"drain {sidecar.pod}")
        return pb.OrderAnswer(
            error="" if self.drained is None else await asyncio.shield(cast(Any, self.drained))
        )

    def _versioned(self) -> Json:
        found = copy.deepcopy(self.workload)
        found["metadata"]["resourceVersion"] = str(self.version)
        return found

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Json | None:
        assert (kind.kind, namespace, name) == (self.workload["kind"], "shop", "orders")
        return None if "deletionTimestamp" in self.workload["metadata"] else self._versioned()

    async def scale(
        self, kind: ResourceKind, namespace: str, name: str, replicas: int, resource_version: str
    ) -> Json:
        if self.failures:
            raise self.failures.pop()
        assert resource_version == str(self.version), "bound to the version that was read"
        self.acts.append(f"scale {replicas}")
        self.put_replicas(replicas)
        return {"metadata": {"resourceVersion": str(self.version)}}

    async def list(self, kind: ResourceKind, namespace: str, selector: str) -> AsyncIterator[Json]:
        assert (kind, namespace, selector) == (POD, "shop", f"rota.dev/consumer-group-uid={UID}")
        if self.unlisted:
            raise self.unlisted.pop()
        for each in self.pods.values():
            yield each

    async def patch(self, kind: ResourceKind, namespace: str, name: str, changes: Json) -> Json:
        assert (kind, namespace) == (POD, "shop")
        cost = changes["metadata"]["annotations"][DELETION_COST]
        self.acts.append(f"cost of {name}: {'removed' if cost is None else 'lowest'}")
        return {}
