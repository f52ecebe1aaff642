"""`kubectl rota doctor` finds each thing that can be wrong between the caller and a ready group, and only that."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota_cli.clusters.clocks import Clocks, system_clocks
from tests.cli.command import CommandResult
from tests.cli.kubectl.api_server import Answer, Sent, refusal
from tests.cli.kubectl.conftest import Kubectl, Serve
from tests.cli.kubectl.resources import CONDITIONS, NAME, PATH, STATUS, condition, group

IMAGE = str(STATUS["sidecarImage"])
SERVED = [{"name": "consumergroups"}, {"name": "consumergroups/status"}, {"name": "consumergroups/scale"}]
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/rota/leases"
LABELS = "app.kubernetes.io/name=rota,app.kubernetes.io/component=operator"


def lease(
    age_s: float = 1.0,
    holder: str = "operator-0",
    version: str = "1",
    name: str = "rota-operator",
    **spec: object,
) -> dict[str, Any]:
    renewed = datetime.now(UTC) - timedelta(seconds=age_s)  # noqa: TID251  the command compares it with its own clock
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.isoformat(), **spec}
    return {"metadata": {"namespace": "rota", "name": name, "resourceVersion": version}, "spec": spec}


def leases(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"metadata": {}, "items": list(items)})


def pod(name: str = "orders-0", *, image: str = IMAGE, ready: bool = True, **state: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"initContainers": [{"name": "rota-sidecar", "image": image}], "containers": [{"name": "app"}]},
        "status": {
            "phase": "Running",
            "initContainerStatuses": [{"name": "rota-sidecar", "ready": ready, "state": state}],
        },
    }  # fmt: skip


class Cluster:
    """Answers of a cluster in which all is well; a test replaces what it is about."""

    def __init__(self) -> None:
        self.version: dict[str, str] = {"major": "1", "minor": "35", "gitVersion": "v1.35.4"}
        self.served = Answer(200, {"resources": SERVED})
        self.denied: set[tuple[str, str]] = set()
        # By their labels.
        self.leases: Iterator[Answer] = iter([leases(lease())])
        # By the usual name.
        self.lease: Answer = refusal(404, "not found", name="rota-operator")
        self.groups: list[dict[str, Any]] = [group()]
        self.pods = Answer(200, {"items": [pod("orders-0"), pod("orders-1")]})

    def __call__(self, sent: Sent) -> Answer:
        match sent.path:
            case "/version":
                return Answer(200, self.version)
            case "/apis/rota.dev/v1alpha1":
                return self.served
            case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
                return self._reviewed(sent.body["spec"]["resourceAttributes"])
            case path if path.startswith(LEASES_PATH):
                return self._leases(sent)
            case path if path == PATH:
                return Answer(200, {"metadata": {}, "items": self.groups})
            case path if path == f"{PATH}/{NAME}":
                return Answer(200, self.groups[0])
            case "/api/v1/namespaces/shop/pods":
                return self.pods
        return refusal(404, "not found", name=sent.path)

    def _leases(self, sent: Sent) -> Answer:
        if sent.path != LEASES_PATH:
            assert sent.path == f"{LEASES_PATH}/rota-operator"
            return self.lease
        assert sent.query["labelSelector"] == LABELS
        return next(self.leases)

    def _reviewed(self, asked: dict[str, str]) -> Answer:
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        is_of_operator = resource in ("leases", "pods/portforward")
        assert asked["namespace"] == ("rota" if is_of_operator else "shop")
        return Answer(201, {"status": {"allowed": (asked["verb"], resource) not in self.denied}})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times that the command waits, which pass at once; no other time passes."""
    found: list[float] = []
    clocks = Clocks(system_clocks().now_ms, lambda: sum(found))
    monkeypatch.setattr("rota_cli.commands.kubectl.doctor.wait_s", found.append)
    monkeypatch.setattr("rota_cli.commands.kubectl.doctor.system_clocks", lambda: clocks)
    return found


@pytest.fixture
def doctor(serve: Serve, kubectl: Kubectl, cluster: Cluster) -> Callable[..., CommandResult]:
    def run(*arguments: str) -> CommandResult:
        serve(cluster)
        return kubectl("doctor", *arguments)

    return run


Doctor = Callable[..., CommandResult]


def problems(done: CommandResult) -> list[tuple[str, str, str]]:
    """Verdict, subject and message of all checks but those that found nothing."""
    lines = [(line[:8].strip(), line[10:22].strip(), line[23:]) for line in done.stdout.splitlines()]
    return [each for each in lines if each[0] in ("warning", "failed")]


def test_nothing_is_wrong_with_a_group_that_works(doctor: Doctor) -> None:
    done = doctor()
    assert [line.split("  ")[0] for line in done.lines[:-1]] == ["ok"] * 6
    assert done.lines[-1] == "no problems found"
    assert "operator-0 leads, by Lease rota/rota-operator" in done.stdout
    assert "you have all 10 rights of these commands in namespace shop and rota" in done.stdout
    assert "2 pods of shop/orders-enricher, each sidecar ready" in done.stdout


def test_checks_are_for_programs_too(doctor: Doctor) -> None:
    assert {each["verdict"] for each in doctor(NAME, "-o", "json").data} == {"ok"}


def test_a_definition_that_is_not_installed_ends_the_checks(doctor: Doctor, cluster: Cluster) -> None:
    cluster.served = Answer(404, b"404 page not found")
    done = doctor()
    assert done.code == 4
    [(verdict, subject, message)] = problems(done)
    assert (verdict, subject) == ("failed", "resource")
    assert "does not serve rota.dev/v1alpha1: install its CustomResourceDefinition" in message


def test_a_definition_without_a_status_is_not_that_of_rota(doctor: Doctor, cluster: Cluster) -> None:
    cluster.served = Answer(200, {"resources": SERVED[:1]})
    [(verdict, _, message)] = problems(doctor())
    assert (verdict, message) == (
        "failed",
        "rota.dev/v1alpha1 is served without consumergroups/status: install the CustomResourceDefinition of Rota",
    )


def test_a_kubernetes_without_native_sidecars_is_too_old(doctor: Doctor, cluster: Cluster) -> None:
    cluster.version = {"major": "1", "minor": "28+", "gitVersion": "v1.28.1"}
    [(verdict, subject, message)] = problems(doctor())
    assert (verdict, subject) == ("failed", "api server")
    assert message.endswith("Kubernetes v1.28.1, which has no native sidecars: upgrade to 1.29 or newer")


def test_each_right_that_is_missing_is_named_with_what_needs_it(doctor: Doctor, cluster: Cluster) -> None:
    cluster.denied = {("watch", "consumergroups"), ("list", "events")}
    done = doctor()
    assert done.code == 0
    assert problems(done) == [
        ("warning", "rights", "you may not watch consumergroups.rota.dev in namespace shop, as groups watch and groups reset needs"),
        ("warning", "rights", "you may not list events in namespace shop, as groups explain needs"),
    ]  # fmt: skip


def test_rights_that_the_page_of_the_operator_needs_are_named(doctor: Doctor, cluster: Cluster) -> None:
    cluster.denied = {("get", "leases"), ("list", "leases"), ("create", "pods/portforward")}
    assert problems(doctor()) == [
        ("warning", "rights", "you may not get leases.coordination.k8s.io in namespace rota, as ui needs"),
        ("warning", "rights", "you may not create pods/portforward in namespace rota, as ui needs"),
    ]


@pytest.mark.parametrize("right", [("get", "leases"), ("list", "leases")])
def test_either_right_to_read_the_lease_is_enough(
    doctor: Doctor, cluster: Cluster, right: tuple[str, str]
) -> None:
    cluster.denied = {right}
    assert problems(doctor()) == []


def test_an_operator_that_never_led_is_missing(doctor: Doctor, cluster: Cluster) -> None:
    cluster.leases = iter([leases()])
    done = doctor()
    assert done.code == 4
    [(verdict, _, message)] = problems(done)
    assert (verdict, message) == (
        "failed",
        "namespace rota has no Lease of an operator: install the operator, or name its namespace with --operator-namespace",
    )


def test_a_lease_that_is_named_is_looked_for_by_its_name(doctor: Doctor, cluster: Cluster) -> None:
    cluster.leases = iter(())
    done = doctor("--operator-lease", "rota-operator")
    assert done.code == 4
    [(_, _, message)] = problems(done)
    assert message.startswith("Lease rota/rota-operator not found: install the operator, or give")
    cluster.lease = Answer(200, lease())
    assert problems(doctor("--operator-lease", "rota-operator")) == []


def test_a_lease_of_any_name_is_found_by_its_labels(doctor: Doctor, cluster: Cluster) -> None:
    # A release that was removed has left its Lease.
    cluster.leases = iter([leases(lease(holder=""), lease(name="prod-rota-operator"))])
    assert "operator-0 leads, by Lease rota/prod-rota-operator" in doctor().stdout


def test_leases_of_several_operators_are_named(doctor: Doctor, cluster: Cluster) -> None:
    cluster.leases = iter([leases(lease(name="b"), lease(name="a"))])
    [(verdict, _, message)] = problems(doctor())
    assert (verdict, message) == (
        "failed",
        "namespace rota has the Leases of 2 operators: name one with --operator-lease (a, b)",
    )


@pytest.mark.parametrize(
    "listed",
    [leases(), refusal(403, 'forbidden: User "alice" cannot list resource "leases"')],
    ids=["an older operator has written no labels", "Leases may not be listed"],
)
def test_a_lease_that_labels_do_not_find_has_its_usual_name(
    doctor: Doctor, cluster: Cluster, listed: Answer
) -> None:
    cluster.leases, cluster.lease = iter([listed]), Answer(200, lease())
    assert problems(doctor()) == []


def test_a_lease_that_nobody_holds(doctor: Doctor, cluster: Cluster) -> None:
    cluster.leases = iter([leases(lease(holder=""))])
    [(verdict, _, message)] = problems(doctor())
    assert (verdict, message) == (
        "failed",
        "Lease rota/rota-operator is not held, so no operator leads: see `kubectl get pods -n rota`",
    )


def test_a_lease_of_another_clock_counts_as_fresh_once_it_is_renewed(
    doctor: Doctor, cluster: Cluster, waits: list[float]
) -> None:
    # An hour ahead: neither fresh nor old by this clock.
    cluster.leases = iter(leases(lease(-3600, version=version)) for version in ("1", "1", "2"))
    assert problems(doctor()) == []
    assert len(waits) == 2


def test_a_lease_that_is_not_renewed_within_its_duration(doctor: Doctor, cluster: Cluster) -> None:
    def stale() -> Iterator[Answer]:
        while True:
            yield leases(lease(60))

    cluster.leases = stale()
    done = doctor()
    assert done.code == 1
    [(verdict, _, message)] = problems(done)
    assert (verdict, message) == (
        "failed",
        "operator-0 has not renewed Lease rota/rota-operator within its 15 s: see `kubectl get pods -n rota`",
    )


def test_a_lease_that_may_not_be_read_is_unknown(doctor: Doctor, cluster: Cluster) -> None:
    cluster.leases = iter([refusal(403, 'forbidden: User "alice" cannot list resource "leases"')])
    cluster.lease = refusal(403, 'forbidden: User "alice" cannot get resource "leases"')
    done = doctor()
    assert done.code == 0
    [(verdict, subject, message)] = problems(done)
    assert (verdict, subject) == ("warning", "operator")
    assert message.startswith("unknown: alice may not get leases.coordination.k8s.io in namespace rota at")


def test_an_operator_without_an_election_has_no_lease(doctor: Doctor) -> None:
    checks = doctor("--operator-lease", "", "-o", "json").data
    assert "operator" not in {each["what"] for each in checks}


def test_conditions_that_are_not_good_are_warnings(doctor: Doctor, cluster: Cluster) -> None:
    conditions = [
        condition("Ready", "False", "PartitionsStuck", "orders-3"),
        *CONDITIONS[1:2],
        condition("Lagging", "Unknown", "LagUnknown"),
        condition("Stuck", "True", "PartitionsStuck", "orders-3"),
    ]
    cluster.groups = [group({**STATUS, "observedGeneration": 1, "conditions": conditions})]
    assert [message for _, _, message in problems(doctor())] == [
        "the operator has not followed the last edit of shop/orders-enricher yet",
        "shop/orders-enricher: Ready is False (PartitionsStuck): orders-3",
        "shop/orders-enricher: Stuck is True (PartitionsStuck): orders-3",
        "shop/orders-enricher: Lagging is Unknown (LagUnknown)",
    ]


def test_a_group_without_a_status_is_watched_by_no_operator(doctor: Doctor, cluster: Cluster) -> None:
    cluster.groups = [group({})]
    [(_, _, message)] = problems(doctor(NAME))
    assert message == (
        "shop/orders-enricher has no status: the operator runs elsewhere, or does not watch this namespace"
    )


def test_a_namespace_without_groups(doctor: Doctor, cluster: Cluster) -> None:
    cluster.groups = []
    assert "no ConsumerGroups in namespace shop" in doctor().stdout


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            pod(ready=False, running={}),
            "the sidecar of pod orders-0 is not ready: see `kubectl logs orders-0 -c rota-sidecar -n shop`",
        ),
        (
            pod(ready=False, waiting={"reason": "ImagePullBackOff"}),
            "the sidecar of pod orders-0 waits (ImagePullBackOff): see `kubectl describe pod orders-0 -n shop`",
        ),
        (
            pod(image="other:1"),
            f"the sidecar of pod orders-0 has image other:1, and the status pins {IMAGE}: a rollout is not complete",
        ),
        (
            {**pod(), "spec": {"containers": [{"name": "app"}]}},
            "pod orders-0 has no sidecar: it is older than the adoption of its workload, whose rollout is not complete",
        ),
        (
            {**pod(), "status": {"phase": "Pending"}},
            "the sidecar of pod orders-0 has not started (the pod is Pending): see `kubectl describe pod orders-0 -n shop`",
        ),
    ],
    ids=["not-ready", "waiting", "other-image", "no-sidecar", "pending"],
)
def test_a_pod_whose_sidecar_does_not_work_is_named(
    doctor: Doctor, cluster: Cluster, found: dict[str, Any], message: str
) -> None:
    cluster.pods = Answer(200, {"items": [found]})
    assert problems(doctor()) == [("warning", "sidecars", message)]


def test_pods_that_end_are_not_checked(doctor: Doctor, cluster: Cluster) -> None:
    ending = pod("orders-2", ready=False)
    ending["metadata"]["deletionTimestamp"] = "2026-11-26T05:00:00Z"
    evicted = {**pod("orders-3", ready=False), "status": {"phase": "Failed"}}
    cluster.pods = Answer(200, {"items": [ending, evicted, pod()]})
    assert "1 pod of shop/orders-enricher, each sidecar ready" in doctor().stdout


def test_many_pods_with_a_problem_are_counted(doctor: Doctor, cluster: Cluster) -> None:
    cluster.pods = Answer(200, {"items": [pod(f"orders-{number}", ready=False) for number in range(8)]})
    found = problems(doctor())
    assert len(found) == 6
    assert found[-1][2] == "3 further pods of shop/orders-enricher"


def test_a_name_without_a_group_fails(doctor: Doctor) -> None:
    done = doctor("other")
    assert done.code == 4
    [(verdict, subject, message)] = problems(done)
    assert (verdict, subject) == ("failed", "group")
    assert message.startswith("consumergroup shop/other not found at")
