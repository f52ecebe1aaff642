"""
Leader election by a Lease: performs what `rota_operator.leadership` decides.

`process` runs it beside the work. `wait_until_leading` returns once this process leads; the work starts then. `run` raises
LeadershipLost when the Lease could not be renewed in time, which ends the work; when `stop` is set, after the work has
stopped, it releases the Lease, so that the next process leads at once.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rota_operator import leadership as core
from rota_operator.cluster.errors import ApiError, Conflict, NotFound
from rota_operator.cluster.kinds import LEASE, ResourceKind
from rota_operator.reconcile.observed import Object

# By which `kubectl rota` finds the Lease in the operator's namespace.
LABELS: Mapping[str, str] = {"app.kubernetes.io/name": "rota", "app.kubernetes.io/component": "operator"}


class LeadershipLost(Exception):
    """Another process may lead now; the message says why. The work must end without a further write."""


class LeaseApi(Protocol):
    """Part of `Api`. Every method raises ApiError."""

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """Read an object; None if it does not exist."""
        ...

    async def create(self, kind: ResourceKind, namespace: str, body: Object) -> Object:
        """Create an object."""
        ...

    async def replace(self, kind: ResourceKind, namespace: str, name: str, body: Object) -> Object:
        """Replace an object of the resource version in `body`."""
        ...


class LeaseName(NamedTuple):
    """The Lease that the operator's processes share."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of the process."""

    # Seconds; goes on while the machine is suspended.
    monotonic_s: Callable[[], float]
    # The time of now in RFC 3339 with microseconds, UTC. Written into the Lease for people; never compared.
    timestamp: Callable[[], str]


class LeaderElection:
    """
    Thread-confined to one event loop. `identity` is unique among all processes and all their terms.

    Invariant: at most one request is under way, and nothing is requested after `run` has returned or raised.
    """

    def __init__(
        self, api: LeaseApi, lease: LeaseName, identity: str, clocks: Clocks, warn: Callable[[str], None]
    ) -> None:
        self._api = api
        self._lease = lease
        self._identity = identity
        self._clocks = clocks
        self._warn = warn
        self._last_problem = ""
        self._state, self._action = core.begin(clocks.monotonic_s())
        self._leading = asyncio.Event()

    @property
    def is_leading(self) -> bool:
        """True while this process may act."""
        return core.is_leading(self._state, self._clocks.monotonic_s())

    async def wait_until_leading(self) -> None:
        """Return once this process has become the leader."""
        await self._leading.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Acquire and renew the Lease until `stop` is set, then release it. Raises LeadershipLost."""
        stopping = asyncio.ensure_future(stop.wait())
        is_stopping = False
        try:
            while not isinstance(self._action, core.Stop):
                performing = asyncio.ensure_future(self._perform(self._action))
                waiting: set[asyncio.Future[Any]] = {performing} if is_stopping else {performing, stopping}
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    performing.cancel()
                if performing.done() and not performing.cancelled():
                    self._apply(performing.result())
                if stopping.done() and not is_stopping:
                    is_stopping = True
                    self._apply(core.StopRequested())
        finally:
            stopping.cancel()
        if self._action.error:
            raise LeadershipLost(
                f"leadership is lost: {self._action.error}; this process stops its work, and is a candidate again"
            )

    def _apply(self, event: core.Event) -> None:
        self._state, action = core.step(self._identity, self._state, event, self._clocks.monotonic_s())
        if not isinstance(action, core.KeepWaiting):
            self._action = action
        if self.is_leading:
            self._leading.set()

    async def _perform(self, action: core.Action) -> core.Event:
        match action:
            case core.ReadLease(deadline_s):
                return await self._request(self._read, deadline_s)
            case core.WriteLease(lease, deadline_s):
                return await self._request(lambda: self._write(lease), deadline_s)
            case core.Wait(until_s):
                await asyncio.sleep(until_s - self._clocks.monotonic_s())
                return core.Tick()
            case core.KeepWaiting() | core.Stop():
                raise AssertionError(f"{action} is not performed")

    async def _request(self, request: Callable[[], Any], deadline_s: float) -> core.Event:
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self._clocks.monotonic_s())):
                event: core.Event = await request()
        except TimeoutError:
            self._report("the API server did not answer in time")
            return core.RequestFailed()
        except ApiError as error:
            self._report(str(error))
            return core.RequestFailed()
        self._last_problem = ""
        return event

    async def _read(self) -> core.Event:
        body = await self._api.find(LEASE, *self._lease)
        return core.LeaseRead(None if body is None else lease_of(body))

    async def _write(self, lease: core.Lease) -> core.Event:
        body = body_of(lease, self._lease, self._clocks.timestamp())
        try:
            if lease.resource_version:
                stored = await self._api.replace(LEASE, *self._lease, body)
            else:
                stored = await self._api.create(LEASE, self._lease.namespace, body)
        except (Conflict, NotFound):
            return core.WriteConflicted()
        return core.LeaseWritten(lease_of(stored))

    def _report(self, problem: str) -> None:
        """Log a problem once until a request succeeds or another problem occurs."""
        if problem != self._last_problem:
            self._last_problem = problem
            namespace, name = self._lease
            self._warn(f"the lease {namespace}/{name} can be neither read nor renewed: {problem}")


def lease_of(body: Object) -> core.Lease:
    """Return the Lease of an API object; without a holder it is free."""
    spec: Mapping[str, Any] = body.get("spec") or {}
    return core.Lease(
        holder=str(spec.get("holderIdentity") or ""),
        duration_s=int(spec.get("leaseDurationSeconds") or core.DURATION_S),
        transitions=int(spec.get("leaseTransitions") or 0),
        acquired=str(spec.get("acquireTime") or ""),
        renewed=str(spec.get("renewTime") or ""),
        resource_version=str(body["metadata"]["resourceVersion"]),
    )


def body_of(lease: core.Lease, name: LeaseName, timestamp: str) -> Object:
    """Return the API object to write."""
    metadata: dict[str, Any] = {"namespace": name.namespace, "name": name.name, "labels": dict(LABELS)}
    if lease.resource_version:
        metadata["resourceVersion"] = lease.resource_version
    spec: dict[str, Any] = {
        "leaseDurationSeconds": lease.duration_s,
        "leaseTransitions": lease.transitions,
        "acquireTime": lease.acquired or timestamp,
        "renewTime": timestamp,
    }
    if lease.holder:
        spec["holderIdentity"] = lease.holder
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
