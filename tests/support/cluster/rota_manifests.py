"""
Manifests of Rota's own parts in a test cluster: a coordinator with its log, open inside the cluster's network, and an operator.

Applied by the fixtures. The operator's rules are the least that it works with: a verb that is missing here is named in a condition,
and one that is not needed has no place here.
"""

from tests.support.cluster.manifests import Manifest, deployment, service

NAMESPACE = "rota"
OPERATOR, COORDINATOR = "rota-operator", "rota-coordinator"
COORDINATOR_ADDRESS = f"{COORDINATOR}.{NAMESPACE}:7070"
# Kubernetes takes the user from the image, but not the group.
SECURITY = {
    "runAsNonRoot": True,
    "runAsGroup": 65532,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
# API group, resources, verbs: in all namespaces.
RULES = (
    ("rota.dev", ("consumergroups",), ("get", "list", "watch", "patch")),
    ("rota.dev", ("consumergroups/status",), ("patch",)),
    ("apps", ("deployments", "statefulsets"), ("get", "list", "watch", "patch")),
    ("apps", ("deployments/scale", "statefulsets/scale"), ("patch",)),
    ("", ("configmaps",), ("get", "list", "watch", "create", "patch")),
    ("", ("pods",), ("get", "list", "patch")),
    ("", ("events",), ("list", "create")),
    ("policy", ("poddisruptionbudgets",), ("get", "list", "watch", "create", "patch", "delete")),
    ("autoscaling", ("horizontalpodautoscalers",), ("list",)),
    ("authentication.k8s.io", ("tokenreviews",), ("create",)),
    # For the web page.
    ("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
    # kopf watches which kinds there are.
    ("apiextensions.k8s.io", ("customresourcedefinitions",), ("list", "watch")),
)
# Beside them, with --spark.
SPARK_RULES = tuple(
    (group, ("sparkapplications",), ("get", "list", "create", "delete"))
    for group in ("sparkoperator.k8s.io", "spark.apache.org")
)
# In the operator's own namespace.
OWN_RULES = (("coordination.k8s.io", ("leases",), ("get", "create", "update")),)


def rota(operator_image: str, coordinator_image: str, sidecar_image: str) -> list[Manifest]:
    """Everything, in the order in which it is applied."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": OPERATOR, "namespace": NAMESPACE},
        },
        *rights("ClusterRole", RULES),
        *rights("Role", OWN_RULES),
        *in_namespace(coordinator(coordinator_image)),
        *in_namespace(operator(operator_image, sidecar_image)),
    ]


def rights(kind: str, rules: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]) -> list[Manifest]:
    """A role of the operator, and its binding."""
    metadata = {"name": OPERATOR} | ({"namespace": NAMESPACE} if kind == "Role" else {})
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": metadata,
            "rules": [
                {"apiGroups": [name], "resources": list(resources), "verbs": list(verbs)}
                for name, resources, verbs in rules
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": OPERATOR},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}],
        },
    ]


def coordinator(image: str, namespace: str = NAMESPACE) -> list[Manifest]:
    """A coordinator without TLS and tokens, with an embedded log that goes with its pod. `namespace` is where it is applied."""
    container = {
        "name": "coordinator",
        "image": image,
        "args": [
            "--listen=0.0.0.0:7070",
            f"--advertise={COORDINATOR}.{namespace}:7070",
            "--http-listen=0.0.0.0:7071",
            "--store=sqlite:/var/lib/rota/coordinator.db",
            "--group-initial-rebalance-delay-ms=0",
            "--insecure",
        ],
        "readinessProbe": probe("/readyz", 7071),
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "state", "mountPath": "/var/lib/rota"}],
    }
    volumes = [{"name": "state", "emptyDir": {}}]
    return [
        deployment(COORDINATOR, container, volumes=volumes, securityContext={"fsGroup": 65532}),
        service(COORDINATOR, port=7070, target=7070),
    ]


def operator(image: str, sidecar_image: str) -> list[Manifest]:
    """An operator that serves Fleet without TLS. Sidecars see the address of each replica, of which the leader listens."""
    container = {
        "name": "operator",
        "image": image,
        "args": [
            "cluster",
            "--http-listen=0.0.0.0:7082",
            "--fleet-listen=0.0.0.0:7083",
            f"--fleet-address={OPERATOR}.{NAMESPACE}:7083",
            f"--sidecar-image={sidecar_image}",
            "--insecure",
        ],
        "livenessProbe": probe("/livez", 7082),
        "readinessProbe": probe("/readyz", 7082),
        "securityContext": SECURITY,
    }
    return [
        deployment(OPERATOR, container, serviceAccountName=OPERATOR),
        service(OPERATOR, port=7083, target=7083, clusterIP="None"),
    ]


def probe(path: str, port: int) -> Manifest:
    """An HTTP probe each second."""
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 1, "failureThreshold": 30}


def in_namespace(manifests: list[Manifest]) -> list[Manifest]:
    """Manifests with the namespace of Rota."""
    return [{**each, "metadata": {**each["metadata"], "namespace": NAMESPACE}} for each in manifests]
