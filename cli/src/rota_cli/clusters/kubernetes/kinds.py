"""Kinds of resources that `kubectl rota` reads, and the paths at which the API server serves them."""

from typing import NamedTuple
from urllib.parse import quote, urlencode


class ResourceKind(NamedTuple):
    """A kind of one API version."""

    api_version: str
    # In messages, as kubectl writes it.
    singular: str
    # In paths and in RBAC rules.
    plural: str

    @property
    def group(self) -> str:
        """Return the API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """Return the resource as `kubectl auth can-i` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None, name: str = "", **query: str) -> str:
        """Return the path of a namespace's resources or of one of them, with a query string; None: not namespaced."""
        parts = ["/apis" if self.group else "/api", self.api_version]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        return "/".join(parts) + (f"?{urlencode(query)}" if query else "")


CONSUMER_GROUP = ResourceKind("rota.dev/v1alpha1", "consumergroup", "consumergroups")
CONFIG_MAP = ResourceKind("v1", "configmap", "configmaps")
EVENT = ResourceKind("v1", "event", "events")
POD = ResourceKind("v1", "pod", "pods")
POD_FORWARD = ResourceKind("v1", "pod", "pods/portforward")
SERVICE_ACCOUNT = ResourceKind("v1", "serviceaccount", "serviceaccounts")
ACCOUNT_TOKEN = ResourceKind("v1", "serviceaccount", "serviceaccounts/token")
LEASE = ResourceKind("coordination.k8s.io/v1", "lease", "leases")
ACCESS_REVIEW = ResourceKind("authorization.k8s.io/v1", "selfsubjectaccessreview", "selfsubjectaccessreviews")
