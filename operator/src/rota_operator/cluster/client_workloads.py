"""
Gives workloads with the label `rota.dev/client` their credentials for Rota's servers. Run by `leading`, beside the reconciler.

They are listed periodically by their labels: kopf watches the workloads of groups only, and these change rarely. What to do is
decided in `reconcile.client_workloads`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError
from rota_operator.cluster.kinds import CONFIG_MAP, WORKLOADS, workload_kind
from rota_operator.cluster.perform import of_version
from rota_operator.reconcile.actions import ReleaseWorkload
from rota_operator.reconcile.client_workloads import (
    AUTHORITY_NAME,
    CLIENT_LABEL,
    MANAGED_LABEL,
    ApplyAuthority,
    ApplyClient,
    ClientAction,
    plan_clients,
)
from rota_operator.reconcile.observed import Object, OperatorSettings
from rota_operator.reconcile.target import ref_of, resource_version

PERIOD_S = 5.0
SELECTORS = (f"{CLIENT_LABEL}=true", MANAGED_LABEL)


class ClientWorkloads:
    """The workloads of clients in the operator's namespaces. Invariant: an error is reported once, until it is another one."""

    def __init__(
        self,
        api: Api,
        settings: Callable[[], OperatorSettings],
        namespaces: Sequence[str],
        warn: Callable[[str], None],
        period_s: float = PERIOD_S,
    ) -> None:
        """`settings`: those of now; `namespaces`: empty for all."""
        self._api = api
        self._settings = settings
        self._namespaces = tuple(namespaces) or (None,)
        self._warn = warn
        self._period_s = period_s
        self._last_errors: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Reconcile periodically until cancelled."""
        while True:
            errors = frozenset(await self.reconcile())
            for error in sorted(errors - self._last_errors):
                self._warn(error)
            self._last_errors = errors
            await asyncio.sleep(self._period_s)

    async def reconcile(self) -> Sequence[str]:
        """Reconcile all namespaces once; return what has failed. A failure in one namespace does not stop the others."""
        errors: list[str] = []
        try:
            found = await self._list()
        except ApiError as error:
            return [f"workloads with the label {CLIENT_LABEL} cannot be listed: {error}"]
        for namespace, workloads in sorted(found.items()):
            try:
                config_map = await self._api.find(CONFIG_MAP, namespace, AUTHORITY_NAME)
            except ApiError as error:
                errors.append(f"credentials of workloads in namespace {namespace} are not applied: {error}")
                continue
            for action in plan_clients(workloads, config_map, self._settings()):
                try:
                    await self._perform(namespace, action)
                except ApiError as error:
                    errors.append(
                        f"credentials of workloads in namespace {namespace} are not applied: {error}"
                    )
        return errors

    async def _list(self) -> dict[str, list[Object]]:
        """Return the workloads with one of the labels, by namespace."""
        found: dict[str, dict[str, Object]] = defaultdict(dict)
        for namespace in self._namespaces:
            for kind in WORKLOADS:
                for selector in SELECTORS:
                    async for each in self._api.list(kind, namespace, selector):
                        metadata = each["metadata"]
                        # Items of a list have neither.
                        named = {**each, "apiVersion": kind.api_version, "kind": kind.kind}
                        found[metadata["namespace"]][metadata["uid"]] = named
        return {namespace: list(workloads.values()) for namespace, workloads in found.items()}

    async def _perform(self, namespace: str, action: ClientAction) -> None:
        match action:
            case ApplyAuthority():
                await self._api.apply(CONFIG_MAP, namespace, action.name, action.fields, force=True)
            case ApplyClient():
                ref, version = ref_of(action.workload), resource_version(action.workload)
                fields = of_version(action.fields, version)
                await self._api.apply(workload_kind(ref), namespace, ref.name, fields)
            case ReleaseWorkload():
                ref = action.workload
                nothing = of_version({}, action.resource_version)
                await self._api.apply(workload_kind(ref), namespace, ref.name, nothing)
