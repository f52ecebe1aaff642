"""Kinds of Kubernetes resources that the operator reads or writes, and the paths at which the API server serves them."""

from typing import NamedTuple
from urllib.parse import quote, urlencode

from rota_operator.reconcile.observed import WorkloadRef
from rota_operator.reconcile.spark.kinds import KINDS, SPARK_KIND


class ResourceKind(NamedTuple):
    """A namespaced kind of one API version."""

    api_version: str
    kind: str
    # In paths and in RBAC rules.
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "", **query: str) -> str:
        """Return the path of all resources, of a namespace's or of one resource, with a query string."""
        root = "/apis" if "/" in self.api_version else "/api"
        parts = [root, self.api_version]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts) + (f"?{urlencode(query)}" if query else "")


CONSUMER_GROUP = ResourceKind("rota.dev/v1alpha1", "ConsumerGroup", "consumergroups")
DEPLOYMENT = ResourceKind("apps/v1", "Deployment", "deployments")
STATEFUL_SET = ResourceKind("apps/v1", "StatefulSet", "statefulsets")
CONFIG_MAP = ResourceKind("v1", "ConfigMap", "configmaps")
POD = ResourceKind("v1", "Pod", "pods")
EVENT = ResourceKind("v1", "Event", "events")
DISRUPTION_BUDGET = ResourceKind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
AUTOSCALER = ResourceKind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
LEASE = ResourceKind("coordination.k8s.io/v1", "Lease", "leases")
# By `spec.spark.apiVersion`.
SPARK_APPLICATIONS = {
    api_version: ResourceKind(api_version, SPARK_KIND, "sparkapplications") for api_version in KINDS
}
SCALE_API_VERSION = "autoscaling/v1"
WORKLOADS = (DEPLOYMENT, STATEFUL_SET)


def workload_kind(workload: WorkloadRef) -> ResourceKind:
    """Return the kind of a workload."""
    return next(each for each in WORKLOADS if each.kind == workload.kind)
