"""An adopted application has what it needs to connect to Rota's servers itself: a token, their authority, two variables."""

from dataclasses import replace

from rota.connection import credentials_of_environment
from rota_operator.reconcile import actions as do
from rota_operator.reconcile.adoption import fields
from rota_operator.reconcile.group import group_of
from rota_operator.reconcile.sidecar import SidecarSpec
from rota_operator.reconcile.target import container_of
from tests.operator.reconcile.api_server import Stored
from tests.operator.reconcile.test_adoption import KAFKA, Json, body, pod, sidecar, volumes
from tests.operator.reconcile.worlds import SETTINGS, resource, workload


def test_without_an_authority_an_application_gets_no_token() -> None:
    """Rota's servers have no TLS then, and applications send no token in plain text."""
    (app,) = pod(settings=replace(SETTINGS, authority="", insecure=True))["containers"]
    assert [each["name"] for each in app["env"]] == ["ROTA_SIDECAR"]
    assert [each["name"] for each in app["volumeMounts"]] == ["rota-app"]
    token = volumes(settings=replace(SETTINGS, authority="", insecure=True))["rota-token"]
    assert [list(each) for each in token["projected"]["sources"]] == [["serviceAccountToken"]]


def test_the_sdk_reads_the_variables_of_the_application() -> None:
    (app,) = pod()["containers"]
    variables = {each["name"]: each["value"] for each in app["env"]}
    found = credentials_of_environment(variables)
    mounted = {f"{each['mountPath']}/{file}" for each in app["volumeMounts"] for file in ("token", "ca.crt")}
    assert {str(found.token_file), str(found.ca_file)} <= mounted


def test_variables_that_the_owner_has_set_stay() -> None:
    target = workload()
    app = target["spec"]["template"]["spec"]["containers"][0]
    app["env"] = [{"name": "ROTA_TOKEN_FILE", "value": "/mine"}]
    stored = Stored(target)
    found = body(target)
    names = [each["name"] for each in found["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert names == ["ROTA_SIDECAR", "ROTA_TLS_CA"]
    stored.apply(found, (do.GRACE_PERIOD_FIELD,))
    again = fields_of_live(stored)
    assert again == found, "it stays so once it is applied"


def fields_of_live(stored: Stored) -> Json:
    """The next request for a workload that has been adopted."""
    group = group_of(resource())
    app = container_of(group.spec, stored.live)
    assert app is not None
    spec = SidecarSpec(group, stored.live["kind"], "rota-sidecar:1", SETTINGS, (1, 35))
    return fields(spec, stored.live, app)


def test_tls_without_an_authority_trusts_the_system() -> None:
    assert sidecar(**KAFKA, auth={"tls": {}})["args"][-1] == "--tls"
    assert "rota-auth" not in volumes(**KAFKA, auth={"tls": {}})
