"""Requests to the API server: what is sent, and as which error each refusal arrives."""

import asyncio
import gc
import json
import socket

import pytest
import yaml

from rota_operator.cluster import api as api_module
from rota_operator.cluster.api import Api, yaml_of
from rota_operator.cluster.errors import ApiError, Conflict, Forbidden, NotFound, Refused, Unavailable
from rota_operator.cluster.kinds import CONFIG_MAP, CONSUMER_GROUP, DEPLOYMENT
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, api_at, run, status

DENIED = (
    'deployments.apps "orders" is forbidden: User "system:serviceaccount:rota:operator" cannot patch resource '
    '"deployments" in API group "apps" in the namespace "shop"'
)
QUOTA = 'configmaps "rota-orders" is forbidden: exceeded quota: small, requested: count/configmaps=1'


def error_for(answer: Answer) -> ApiError:
    """The error as which an answer to a request arrives."""
    found: list[ApiError] = []

    async def story(api: Api) -> None:
        with pytest.raises(ApiError) as raised:
            await api.apply(DEPLOYMENT, "shop", "orders", {})
        found.append(raised.value)

    run(ApiServer(lambda sent: answer), story)
    return found[0]


def test_an_apply_names_the_field_manager_the_kind_and_the_object_and_forces_only_when_asked() -> None:
    server = ApiServer(lambda sent: Answer(body={"kind": "Deployment"}))

    async def story(api: Api) -> None:
        fields = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1}}
        assert await api.apply(DEPLOYMENT, "shop", "orders", fields) == {"kind": "Deployment"}
        await api.apply(DEPLOYMENT, "shop", "orders", {}, force=True)

    run(server, story)
    path, apply = "/apis/apps/v1/namespaces/shop/deployments/orders", "application/apply-patch+yaml"
    named = {"name": "orders", "namespace": "shop"}
    head = {"apiVersion": "apps/v1", "kind": "Deployment"}
    query = {"fieldManager": "rota"}
    assert server.sent == [
        Sent(
            "PATCH", path, {**query, "force": "false"}, apply,
            {**head, "metadata": {"labels": {"a": "b"}, **named}, "spec": {"replicas": 1}},
        ),
        Sent("PATCH", path, {**query, "force": "true"}, apply, {**head, "metadata": named}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["\U0002a7e6\\", "a\u2028b\x85c", "é \\ud83d", "\x7f\ufeff", 'plain "quoted"']
)
def test_what_is_applied_is_the_same_as_yaml_and_as_json(text: str) -> None:
    body = {"spec": {"topics": [text], text: 1}}
    assert yaml.safe_load(yaml_of(body)) == body
    assert json.loads(yaml_of(body)) == body


def test_a_list_follows_the_pages_and_passes_its_selector_on() -> None:
    pages = {
        None: {"items": [{"n": 1}, {"n": 2}], "metadata": {"continue": "next"}},
        "next": {"items": [{"n": 3}]},
    }
    server = ApiServer(lambda sent: Answer(body=pages[sent.query.get("continue")]))

    async def story(api: Api) -> None:
        assert [each["n"] async for each in api.list(CONSUMER_GROUP, None, "a=b")] == [1, 2, 3]

    run(server, story)
    assert [each.path for each in server.sent] == ["/apis/rota.dev/v1alpha1/consumergroups"] * 2
    assert [each.query["labelSelector"] for each in server.sent] == ["a=b", "a=b"]


def test_a_scale_goes_to_the_subresource_alone() -> None:
    server = ApiServer(lambda sent: Answer())

    async def story(api: Api) -> None:
        await api.scale(DEPLOYMENT, "shop", "orders", 3)

    run(server, story)
    [sent] = server.sent
    assert (sent.method, sent.path) == ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/orders/scale")
    assert sent.body["spec"] == {"replicas": 3}


def test_what_is_not_there_is_found_as_none_and_its_deletion_succeeds() -> None:
    server = ApiServer(lambda sent: status(404, "NotFound", 'configmaps "rota-orders" not found'))

    async def story(api: Api) -> None:
        assert await api.find(CONFIG_MAP, "shop", "rota-orders") is None
        await api.delete(CONFIG_MAP, "shop", "rota-orders")
        with pytest.raises(NotFound):
            await api.get(CONFIG_MAP, "shop", "rota-orders")

    run(server, story)


def test_a_token_is_reviewed_for_its_audience() -> None:
    user = {"authenticated": True, "user": {"username": "system:serviceaccount:shop:default"}}
    server = ApiServer(lambda sent: Answer(201, {"status": user}))

    async def story(api: Api) -> None:
        assert await api.review_token("secret", ("rota",)) == user

    run(server, story)
    [sent] = server.sent
    assert (sent.method, sent.path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    assert sent.body["spec"] == {"token": "secret", "audiences": ["rota"]}


def test_the_version_is_read_as_two_numbers() -> None:
    async def story(api: Api) -> None:
        assert await api.version() == (1, 35)

    run(ApiServer(lambda sent: Answer(body={"major": "1", "minor": "35+"})), story)


def test_a_conflict_of_field_managers_names_them_and_the_fields_and_is_not_worth_a_retry() -> None:
    field = ".spec.template.spec.terminationGracePeriodSeconds"
    cause = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "kubectl-client-side-apply" using apps/v1',
        "field": field,
    }
    error = error_for(status(409, "Conflict", "Apply failed with 1 conflict", causes=[cause]))
    assert isinstance(error, Conflict)
    assert (error.managers, error.fields) == (("kubectl-client-side-apply",), (field,))
    assert not error.retry
    assert "kubectl-client-side-apply manages" in str(error)


def test_a_conflict_of_versions_is_worth_a_retry() -> None:
    error = error_for(status(409, "Conflict", "the object has been modified"))
    assert isinstance(error, Conflict)
    assert (error.fields, error.retry) == ((), True)


def test_a_missing_right_is_named_with_its_verb() -> None:
    error = error_for(status(403, "Forbidden", DENIED))
    assert isinstance(error, Forbidden)
    assert (error.verb, error.resource) == ("patch", "deployments")
    assert str(error).startswith("the operator may not patch deployments")


@pytest.mark.parametrize(
    "answer",
    [status(403, "Forbidden", QUOTA), status(422, "Invalid", QUOTA), status(400, "BadRequest", QUOTA)],
    ids=["quota", "invalid", "malformed"],
)
def test_a_refusal_keeps_the_message_of_the_api_server(answer: Answer) -> None:
    error = error_for(answer)
    assert isinstance(error, Refused)
    assert QUOTA in str(error)
    assert not error.retry


@pytest.mark.parametrize(
    "answer",
    [
        status(429, "TooManyRequests", "too many requests"),
        status(500, "InternalError", "etcdserver: request timed out"),
        Answer(503, b"upstream connect error"),
        status(401, "Unauthorized", "Unauthorized"),
        Answer(200, b"<html>a proxy</html>"),
    ],
    ids=["overload", "internal", "no json", "credentials", "proxy"],
)
def test_what_may_pass_by_itself_is_worth_a_retry(answer: Answer) -> None:
    error = error_for(answer)
    assert isinstance(error, Unavailable)
    assert error.retry


def test_a_server_that_is_not_there_and_one_that_does_not_answer_are_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nowhere() -> None:
        api = api_at("http://127.0.0.1:1")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await api.get(CONFIG_MAP, "shop", "rota-orders")
        await api.close()

    asyncio.run(nowhere())
    monkeypatch.setattr(api_module, "REQUEST_S", 0.0)

    async def late(api: Api) -> None:
        with pytest.raises(Unavailable, match="did not answer"):
            await api.get(CONFIG_MAP, "shop", "rota-orders")

    run(ApiServer(lambda sent: Answer()), late)


@pytest.mark.parametrize("turns", range(8))
def test_the_server_of_these_tests_leaves_no_connection_open_that_was_given_up_as_it_was_accepted(
    turns: int,
) -> None:
    async def story(api: Api) -> None:
        host, _, port = (await api.connection_info()).server.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))):
            for _ in range(turns):
                await asyncio.sleep(0)

    run(ApiServer(lambda sent: Answer()), story)
    # A connection that is still open is reported as it is collected, and fails the test.
    gc.collect()
