"""Workloads with the label of clients are found in all namespaces of the operator, and one that fails stops no other."""

from collections.abc import Sequence

from rota_operator.cluster.api import Api
from rota_operator.cluster.client_workloads import ClientWorkloads
from rota_operator.reconcile.client_workloads import CLIENT_LABEL, MANAGED_LABEL
from rota_operator.reconcile.observed import Object, OperatorSettings
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run, status

SETTINGS = OperatorSettings("rota-sidecar:1", "rota-operator.rota:7083", authority="PEM")


def workload(namespace: str, name: str) -> Object:
    containers = [{"name": "app", "image": "shop:1"}]
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid of {name}",
            "resourceVersion": "7",
            "labels": {CLIENT_LABEL: "true"},
        },
        "spec": {"template": {"spec": {"containers": containers}}},
    }


def answer_with(workloads: Sequence[Object], failing: str = "") -> ApiServer:
    """An API server with these Deployments, which refuses requests to paths that end so."""

    def answer(sent: Sent) -> Answer:
        if failing and sent.path.endswith(failing):
            return status(403, "Forbidden", "not allowed")
        if sent.path.endswith("/deployments") and sent.query["labelSelector"] == f"{CLIENT_LABEL}=true":
            return Answer(body={"items": [each for each in workloads if is_in(sent.path, each)]})
        if sent.method == "GET" and sent.path.endswith("/rota-authority"):
            return status(404, "NotFound", "not found")
        return Answer(body={"items": []})

    return ApiServer(answer)


def is_in(path: str, each: Object) -> bool:
    return "/namespaces/" not in path or f"/namespaces/{each['metadata']['namespace']}/" in path


def reconciled(server: ApiServer, namespaces: Sequence[str] = ()) -> Sequence[str]:
    errors: list[str] = []

    async def story(api: Api) -> None:
        clients = ClientWorkloads(api, lambda: SETTINGS, namespaces, errors.append)
        errors.extend(await clients.reconcile())

    run(server, story)
    return errors


def written(server: ApiServer) -> Sequence[str]:
    return [each.path for each in server.sent if each.method == "PATCH"]


def test_the_config_map_comes_before_the_workloads_that_wait_for_it() -> None:
    server = answer_with([workload("shop", "producer"), workload("bank", "teller")])
    assert reconciled(server) == []
    assert written(server) == [
        "/api/v1/namespaces/bank/configmaps/rota-authority",
        "/apis/apps/v1/namespaces/bank/deployments/teller",
        "/api/v1/namespaces/shop/configmaps/rota-authority",
        "/apis/apps/v1/namespaces/shop/deployments/producer",
    ]
    applied = next(each.body for each in server.sent if each.path.endswith("/deployments/producer"))
    assert applied["metadata"]["resourceVersion"] == "7"
    assert applied["metadata"]["labels"] == {MANAGED_LABEL: "true"}
    assert [each.query.get("force") for each in server.sent if each.method == "PATCH"] == [
        "true",
        "false",
    ] * 2


def test_only_the_namespaces_of_the_operator_are_asked() -> None:
    server = answer_with([workload("shop", "producer"), workload("bank", "teller")])
    assert reconciled(server, ["shop"]) == []
    assert all("/namespaces/shop/" in each.path for each in server.sent)
    assert len(written(server)) == 2


def test_what_fails_in_one_namespace_stops_no_other() -> None:
    server = answer_with([workload("shop", "producer"), workload("bank", "teller")], failing="/teller")
    (error,) = reconciled(server)
    assert error.startswith("credentials of workloads in namespace bank are not applied: ")
    assert written(server)[-1] == "/apis/apps/v1/namespaces/shop/deployments/producer"


def test_a_list_that_is_refused_is_an_error() -> None:
    (error,) = reconciled(answer_with([], failing="/statefulsets"))
    assert error.startswith(f"workloads with the label {CLIENT_LABEL} cannot be listed: ")
