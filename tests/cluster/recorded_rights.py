"""
Compares the requests that the API server has recorded with the rights that the chart grants.

A right is one verb of one rule of a role, for one account: ACCOUNT WHERE WHAT VERB, as in tests/chart/rights.yaml.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.chart.granted import CLUSTER, Rights
from tests.support.cluster.audit import FORBIDDEN, Request

# Granted to every account by Kubernetes itself.
DISCOVERY = ("/api", "/apis", "/version", "/openapi", "/healthz", "/livez", "/readyz")


class Right(NamedTuple):
    """One verb that an account may use."""

    account: str
    # A namespace, or CLUSTER.
    where: str
    # GROUP/RESOURCE, with =NAME for one object.
    what: str
    verb: str

    def covers(self, request: Request, verb: str) -> bool:
        """Return whether this right allows a request to use a verb."""
        resource, _, name = self.what.partition("=")
        return (
            (self.verb, resource) == (verb, request.resource)
            and name in ("", request.name)
            and self.where in (CLUSTER, request.namespace)
        )


def rights_of(granted: Rights) -> Iterator[Right]:
    """Yield each right."""
    for account, namespaces in granted.items():
        for where, whats in namespaces.items():
            for what, verbs in whats.items():
                yield from (Right(account, where, what, verb) for verb in verbs)


def unused(granted: Rights, requests: Iterable[Request]) -> list[Right]:
    """Return the rights that no request has used."""
    left = set(rights_of(granted))
    for kind in distinct(requests):
        left = {each for each in left if not any(is_used(each, kind, verb) for verb in kind.verbs)}
    return sorted(left)


def is_used(right: Right, request: Request, verb: str) -> bool:
    """Return whether a request is of the right's account, and uses it."""
    return account_of(request) == right.account and right.covers(request, verb)


def not_granted(granted: Rights, requests: Iterable[Request]) -> list[Request]:
    """Return the requests that were forbidden, or that no right covers; one of each kind."""
    rights = list(rights_of(granted))
    return [
        each
        for each in distinct(requests)
        if each.code == FORBIDDEN
        or (
            each.resource
            and not all(any(is_used(right, each, verb) for right in rights) for verb in each.verbs)
        )
        or (not each.resource and not each.path.startswith(DISCOVERY))
    ]


def of_cluster(requests: Iterable[Request]) -> list[Request]:
    """Return the requests for resources without a namespace; one of each kind."""
    return [each for each in distinct(requests) if each.resource and not each.namespace]


def account_of(request: Request) -> str:
    """Return the name of the service account, without its namespace."""
    return request.account.partition("/")[2]


def distinct(requests: Iterable[Request]) -> list[Request]:
    """Return the requests without repetitions: those that differ in their path alone are one."""
    kinds = {(*each[:6], each.path if not each.resource else ""): each for each in requests}
    return list(kinds.values())
