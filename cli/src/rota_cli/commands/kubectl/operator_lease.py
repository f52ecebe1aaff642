"""
Finds the operator's Lease, which names the pod that leads: for `kubectl rota doctor` and `kubectl rota ui`.

The operator writes labels to it. Callers that may not list Leases, and operators that wrote no labels yet, have its usual name.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota_cli.clusters.kubernetes.kinds import LEASE
from rota_cli.diagnosis.cluster_checks import parse_lease
from rota_cli.errors import Failure, NotFound

if TYPE_CHECKING:
    from rota_cli.clusters.kubernetes.api import Api, Object

SELECTOR = "app.kubernetes.io/name=rota,app.kubernetes.io/component=operator"
# Of the operator's --lease-name.
USUAL_NAME = "rota-operator"
# Of Leases in a message.
SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class LeaseFlags:
    """Flags that name the operator's Lease."""

    operator_namespace: Annotated[
        str, typer.Option("--operator-namespace", help="Namespace of the operator and its Lease.")
    ] = "rota"
    operator_lease: Annotated[
        str | None,
        typer.Option(
            "--operator-lease",
            help="Name of the operator's Lease; empty: it has none.",
            show_default="found by its labels",
        ),
    ] = None

    @property
    def likely_name(self) -> str:
        """Return the name of the Lease, as far as the flags tell it."""
        return USUAL_NAME if self.operator_lease is None else self.operator_lease


def find_lease(api: "Api", flags: LeaseFlags) -> "Object":
    """Return the operator's Lease. Raises Failure, with the flag to use where it is not found."""
    namespace, name = flags.operator_namespace, flags.likely_name
    may_list = False
    if flags.operator_lease is None:
        labelled = _labelled(api, namespace)
        may_list = labelled is not None
        if labelled:
            return _chosen(namespace, labelled)
    found = api.find(LEASE, namespace, name)
    if found is not None:
        return found
    if may_list:
        raise NotFound(
            f"namespace {namespace} has no Lease of an operator: install the operator, or name its namespace with "
            "--operator-namespace"
        )
    raise NotFound(
        f"Lease {namespace}/{name} not found: install the operator, or give its --lease-namespace and --lease-name as "
        "--operator-namespace and --operator-lease"
    )


def may_find_lease(api: "Api", flags: LeaseFlags) -> bool:
    """Return whether the caller has a right with which `find_lease` reads the Lease."""
    namespace = flags.operator_namespace
    return api.may("get", LEASE, namespace, flags.likely_name) or (
        flags.operator_lease is None and api.may("list", LEASE, namespace)
    )


def full_name(lease: "Object") -> str:
    """Return namespace and name of a Lease."""
    metadata: dict[str, Any] = lease["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def _labelled(api: "Api", namespace: str) -> "list[Object] | None":
    """Return the Leases with the operator's labels; None: the caller may not list Leases."""
    from rota_cli.clusters.kubernetes.errors import Forbidden

    try:
        return api.list(LEASE, namespace, selector=SELECTOR).items
    except Forbidden:
        # The right to get the one Lease is enough.
        return None


def _chosen(namespace: str, leases: "list[Object]") -> "Object":
    """Return the one Lease, or the one that is held: a release that was removed leaves its Lease. Raises Failure."""
    held = [each for each in leases if parse_lease(each).holder] or leases
    if len(held) > 1:
        names = sorted(str(each["metadata"]["name"]) for each in held)
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        raise Failure(
            f"namespace {namespace} has the Leases of {len(names)} operators: name one with --operator-lease "
            f"({', '.join(names[:SHOWN_MAX])}{more})"
        )
    return held[0]
