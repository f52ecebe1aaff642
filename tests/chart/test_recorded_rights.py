"""Recorded requests are compared with rights verb by verb, for each account, namespace and name."""

import json

import pytest

from tests.cluster.recorded_rights import Right, not_granted, of_cluster, unused
from tests.support.cluster.audit import Request, request_of

GRANTED = {
    "operator": {
        "all": {"/pods": {"get", "list"}},
        "shop": {"apps/deployments/scale": {"patch"}},
        "rota": {"/secrets=tls": {"get"}, "/configmaps": {"patch", "create"}},
    }
}
GET_POD = Request("rota/operator", "get", "/pods", "shop", "a", 200, "/api/v1/namespaces/shop/pods/a")
LIST_PODS = Request("rota/operator", "list", "/pods", "", "", 200, "/api/v1/pods")
SCALE = Request("rota/operator", "patch", "apps/deployments/scale", "shop", "a", 200, "/apis")
READ_SECRET = Request("rota/operator", "get", "/secrets", "rota", "tls", 200, "/api")
APPLY = Request("rota/operator", "patch", "/configmaps", "rota", "new", 201, "/api")
VERSION = Request("rota/operator", "get", "", "", "", 200, "/version")
ALL = [GET_POD, LIST_PODS, SCALE, READ_SECRET, APPLY, VERSION]


def test_a_run_that_uses_each_right_leaves_none() -> None:
    assert unused(GRANTED, ALL) == []
    assert not_granted(GRANTED, ALL) == []


@pytest.mark.parametrize(
    ("missing", "right"),
    [
        (GET_POD, Right("operator", "all", "/pods", "get")),
        (LIST_PODS, Right("operator", "all", "/pods", "list")),
        (SCALE, Right("operator", "shop", "apps/deployments/scale", "patch")),
        (READ_SECRET, Right("operator", "rota", "/secrets=tls", "get")),
    ],
)
def test_a_right_that_no_request_uses_is_named(missing: Request, right: Right) -> None:
    others = [each for each in ALL if each != missing]
    assert unused(GRANTED, others) == [right]
    # Neither does the same request of another account count.
    assert unused(GRANTED, [*others, missing._replace(account="rota/coordinator")]) == [right]


def test_an_apply_that_creates_nothing_needs_no_right_to_create() -> None:
    assert unused(GRANTED, [each if each != APPLY else APPLY._replace(code=200) for each in ALL]) == [
        Right("operator", "rota", "/configmaps", "create")
    ]


@pytest.mark.parametrize(
    "request_",
    [
        GET_POD._replace(verb="delete"),
        GET_POD._replace(code=403),
        GET_POD._replace(account="rota/coordinator"),
        SCALE._replace(namespace="bank"),
        SCALE._replace(namespace=""),
        READ_SECRET._replace(name="other"),
        VERSION._replace(path="/metrics"),
    ],
)
def test_a_request_that_is_not_granted_is_named(request_: Request) -> None:
    assert not_granted(GRANTED, [*ALL, request_]) == [request_]


def test_requests_of_the_cluster_are_those_without_a_namespace() -> None:
    assert of_cluster(ALL) == [LIST_PODS]


def test_an_event_of_the_audit_log_is_read() -> None:
    event = {
        "user": {"username": "system:serviceaccount:rota:operator"},
        "verb": "patch",
        "requestURI": "/apis/apps/v1/namespaces/shop/deployments/a/scale",
        "objectRef": {"resource": "deployments", "namespace": "shop", "name": "a", "apiGroup": "apps", "subresource": "scale"},
        "responseStatus": {"code": 200},
    }  # fmt: skip
    assert request_of(json.loads(json.dumps(event)))[:6] == SCALE[:6]
