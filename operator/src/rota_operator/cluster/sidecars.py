"""
Fleet in a cluster: authenticates sidecars, passes their reports on, and sends them settings, instances, memberships, queries and heartbeats to send. Made and served by `leading`.

The identity of a sidecar is proved by its token and the API server: the token names the pod, the pod's label names the
ConsumerGroup. A report counts for that group alone, whatever is in it.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from typing_extensions import override

from rota_operator.cluster.api import Api
from rota_operator.cluster.config import ClusterConfig
from rota_operator.cluster.driver_drains import DriverDrains
from rota_operator.cluster.fenced_instances import FencedInstances, FencedPorts
from rota_operator.cluster.groups import GroupWatches
from rota_operator.cluster.heartbeat_orders import HeartbeatOrders
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.instance_orders import InstanceOrders, InstancePorts
from rota_operator.cluster.kinds import POD
from rota_operator.cluster.offset_orders import OffsetOrders
from rota_operator.cluster.perform import Sidecars
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key
from rota_operator.cluster.rejection_limit import RejectionLimit
from rota_operator.cluster.settings_orders import SettingsOrders, key_of
from rota_operator.cluster.sidecar_clocks import correct_times
from rota_operator.cluster.succession_orders import SuccessionOrders, SuccessionPorts
from rota_operator.cluster.token_review import PodGroup, SidecarAuthenticator, SidecarPorts
from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_operator.reconcile.actions import CLAIM_LABEL, Configure, DrainDriver
from rota_operator.reconcile.observed import Object
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport
from rota_service.addresses import BindError
from rota_service.event_log import EventLog
from rota_service.pod_tokens import Pod
from rota_service.server_certificates import CertificateFiles, Certificates
from rota_service.token_review import ReviewClocks

REASON_LENGTH_MAX = 500


class FleetEnvironment(NamedTuple):
    """Everything that Fleet needs of the leader."""

    api: Api
    resources: ResourceIndex
    groups: GroupWatches
    clocks: ProcessClocks
    event_log: EventLog


class ClusterFleet(Sidecars):
    """Fleet of one leader; thread-confined to one event loop, served once."""

    def __init__(
        self,
        environment: FleetEnvironment,
        first_order_id: int,
        on_fenced: Callable[[Key], None],
        is_resetting: Callable[[Key], bool],
        on_drained: Callable[[Key], None],
    ) -> None:
        """`on_drained` is called when the drain of a driver is over; `on_fenced` is called when an instance of a group is lost or regained; `first_order_id` is drawn at random for each process, so that no two lives of the operator use the same ids; `is_resetting`: offsets of the group are reset."""
        self._environment = environment
        authenticator = SidecarAuthenticator(
            SidecarPorts(environment.api.review_token, self._group_of),
            ReviewClocks(environment.clocks.monotonic_s, lambda: environment.clocks.wall_ms() / 1000),
        )
        callbacks = FleetCallbacks(
            authenticator.authenticate,
            self._on_report,
            self._on_rejected,
            on_opened=self._on_opened,
        )
        self.server = FleetServer(callbacks, order_ids(first_order_id))
        self.settings = SettingsOrders(self.server, environment.event_log.warning, is_resetting)
        self._offsets = OffsetOrders(
            self.server, environment.groups, environment.clocks.monotonic_s, environment.event_log.warning
        )
        self._instances = InstanceOrders(
            environment.api,
            InstancePorts(
                self.server,
                environment.groups.description,
                environment.clocks,
                environment.event_log.warning,
            ),
        )
        self._successions = SuccessionOrders(
            environment.api,
            SuccessionPorts(self.server, environment.clocks, environment.event_log.warning),
        )
        self.fenced = FencedInstances(
            self.server,
            FencedPorts(
                environment.groups.description,
                self._instances.is_holder,
                on_fenced,
                environment.event_log.warning,
            ),
        )
        self.drains = DriverDrains(self.server, environment.clocks.monotonic_s, on_drained)
        self._heartbeats = HeartbeatOrders(self.server, environment.groups.is_on_kafka)
        self._rejections = RejectionLimit()

    @override
    def configure(self, key: Key, resource: Object, action: Configure) -> None:
        orders_join = action.member_pool is not None
        self.settings.configure(key, action.settings, action.settings_hash, orders_join=orders_join)
        self._instances.offer(key, resource, action.pool)
        self._successions.offer(key, resource, action.member_pool)

    @override
    def drain_driver(self, key: Key, action: DrainDriver) -> None:
        self.drains.order(key, action)

    @override
    def forget(self, key: Key) -> None:
        self.settings.forget(key)
        self._instances.forget(key)
        self._successions.forget(key)

    def tasks(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what has to run while Fleet is served: orders to sidecars."""
        yield self.settings.run()
        yield self._offsets.run()
        yield self._instances.run()
        yield self._successions.run()
        yield self.fenced.run()
        yield self._heartbeats.run()
        yield self.drains.run()

    @asynccontextmanager
    async def serve(self, config: ClusterConfig) -> AsyncIterator[str]:
        """Serve at the configured address; yields it with its port. Raises BindError, CertificateError."""
        credentials = None
        if config.tls_cert is not None and config.tls_key is not None:
            files = CertificateFiles(config.tls_cert, config.tls_key)
            credentials = Certificates(files, self._environment.event_log.warning).credentials()
        async with AsyncExitStack() as stack:
            try:
                serving = serve_fleet(self.server, config.fleet_bind_address, credentials)
                address = await stack.enter_async_context(serving)
            except RuntimeError:
                raise BindError(
                    f"--fleet-listen {config.fleet_bind_address} cannot be listened on; name another address"
                ) from None
            yield address

    async def _group_of(self, pod: Pod) -> PodGroup | None:
        """Return the ConsumerGroup that has adopted a pod's workload. Raises ApiError."""
        found = await self._environment.api.find(POD, pod.namespace, pod.name)
        if found is None or found["metadata"]["uid"] != pod.uid:
            return None
        uid = (found["metadata"].get("labels") or {}).get(CLAIM_LABEL, "")
        key = self._environment.resources.key_of_uid(uid)
        if key is None or key.namespace != pod.namespace:
            return None
        claim = self._environment.resources.claim(key)
        return None if claim is None else PodGroup(f"{key.namespace}/{key.name}", claim.group_id)

    def _on_report(self, principal: Principal, report: SidecarReport) -> None:
        correct_times(report, self._environment.clocks.wall_ms())
        self.settings.reported(principal, report)
        if self._successions.has(key_of(principal)):
            self._successions.reported(principal, report.member)
        else:
            self._instances.reported(principal, report.member)
        self.fenced.reported(principal, report.member)
        self._heartbeats.reported(principal, report.member)
        self._environment.groups.add_report(key_of(principal), report)

    def _on_opened(self, principal: Principal) -> None:
        self.settings.opened(principal)

    def _on_rejected(self, peer: str, reason: str) -> None:
        """Log a rejected stream, within RejectionLimit; the reason may quote names that the sidecar has sent."""
        reason = reason[:REASON_LENGTH_MAX]
        suppressed = self._rejections.admit(self._environment.clocks.monotonic_s())
        if suppressed is not None:
            self._environment.event_log.warning(
                f"rejected a sidecar at {peer}: {reason}",
                "fleet_rejection",
                peer=peer,
                reason=reason,
                suppressed=suppressed,
            )
