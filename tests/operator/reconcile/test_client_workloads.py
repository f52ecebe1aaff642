"""Workloads with the label `rota.dev/client` get a token, the authority and two variables, and give them back without it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest

from rota_operator.reconcile import actions as do
from rota_operator.reconcile.adoption import fields as adopted_fields
from rota_operator.reconcile.client_workloads import (
    AUTHORITY_NAME,
    CLIENT_LABEL,
    MANAGED_LABEL,
    ApplyAuthority,
    ApplyClient,
    fields,
    plan_clients,
)
from rota_operator.reconcile.group import group_of
from rota_operator.reconcile.observed import Object, OperatorSettings, WorkloadRef
from rota_operator.reconcile.ownership import managed_fields
from rota_operator.reconcile.sidecar import SidecarSpec
from rota_operator.reconcile.target import container_of
from tests.operator.reconcile.api_server import Json, Stored
from tests.operator.reconcile.worlds import SETTINGS, resource, workload

UNTRUSTED = replace(SETTINGS, authority="", insecure=True)


def client(name: str = "producer", labels: Mapping[str, str | None] = MappingProxyType({})) -> Json:
    """A workload as its owner applies it, with the label; None removes one."""
    found = workload(WorkloadRef("Deployment", name))
    given: dict[str, str | None] = {CLIENT_LABEL: "true", **labels}
    found["metadata"]["labels"] |= {key: value for key, value in given.items() if value is not None}
    found["metadata"]["uid"] = f"uid of {name}"
    return found


def kinds(
    *workloads: Object, config_map: Object | None = None, settings: OperatorSettings = SETTINGS
) -> Sequence[str]:
    return [type(each).__name__ for each in plan_clients(workloads, config_map, settings)]


def config_map_of(*workloads: Object) -> Object:
    """The ConfigMap for these, as it is read."""
    action = plan_clients(workloads, None, SETTINGS)[0]
    assert isinstance(action, ApplyAuthority)
    body = action.fields
    managed = {"manager": "rota", "operation": "Apply", "fieldsV1": managed_fields(body)}
    return {**body, "metadata": {**body["metadata"], "managedFields": [managed]}}


def applied(stored: Stored) -> Stored:
    stored.apply(fields(stored.live, SETTINGS))
    return stored


def test_the_whole_request() -> None:
    live = Stored(client()).live
    authority, apply = plan_clients([live], None, SETTINGS)
    assert isinstance(authority, ApplyAuthority)
    assert authority.fields["data"] == {"ca.crt": "PEM"}
    assert authority.fields["metadata"]["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "producer", "uid": "uid of producer"}
    ]
    assert isinstance(apply, ApplyClient)
    assert apply.fields == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "producer", "namespace": "shop", "labels": {MANAGED_LABEL: "true"}},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "app",
                            "volumeMounts": [
                                {"name": "rota-token", "mountPath": "/var/run/secrets/rota", "readOnly": True}
                            ],
                            "env": [
                                {"name": "ROTA_TLS_CA", "value": "/var/run/secrets/rota/ca.crt"},
                                {"name": "ROTA_TOKEN_FILE", "value": "/var/run/secrets/rota/token"},
                            ],
                        }
                    ],
                    "volumes": [
                        {
                            "name": "rota-token",
                            "projected": {
                                "sources": [
                                    {
                                        "serviceAccountToken": {
                                            "audience": "rota",
                                            "expirationSeconds": 3600,
                                            "path": "token",
                                        }
                                    },
                                    {
                                        "configMap": {
                                            "name": AUTHORITY_NAME,
                                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                        }
                                    },
                                ]
                            },
                        }
                    ],
                }
            }
        },
    }


def test_at_rest_nothing_is_applied() -> None:
    stored = applied(Stored(client()))
    assert kinds(stored.live, config_map=config_map_of(stored.live)) == []


@pytest.mark.parametrize(
    "labels",
    [
        {CLIENT_LABEL: None},
        {CLIENT_LABEL: "false"},
        {CLIENT_LABEL: "True"},
        {do.CLAIM_LABEL: "uid of a group"},
        {CLIENT_LABEL: None, MANAGED_LABEL: "true"},
    ],
)
def test_other_workloads_are_left_alone(labels: dict[str, str | None]) -> None:
    """The last one has Rota's label, but no field of Rota's."""
    assert kinds(Stored(client(labels=labels)).live) == []


def test_one_that_is_being_deleted_is_left_alone() -> None:
    live = Stored(client()).live
    live["metadata"]["deletionTimestamp"] = "2026-11-24T00:00:00Z"
    assert kinds(live) == []


def test_without_the_label_it_is_what_its_owner_applied() -> None:
    owner = client(labels={CLIENT_LABEL: None})
    before = Stored(owner).body
    stored = Stored(client())
    applied(stored).put(("metadata", "labels", CLIENT_LABEL), "no")
    (release,) = plan_clients([stored.live], config_map_of(Stored(client()).live), SETTINGS)
    assert release == do.ReleaseWorkload(
        WorkloadRef("Deployment", "producer"), stored.live["metadata"]["resourceVersion"]
    )
    stored.release()
    found = stored.body
    del found["metadata"]["labels"][CLIENT_LABEL]
    assert found == before
    assert kinds(stored.live) == []


def test_without_an_authority_there_is_nothing_to_give() -> None:
    assert kinds(Stored(client()).live, settings=UNTRUSTED) == []
    assert kinds(applied(Stored(client())).live, settings=UNTRUSTED) == ["ReleaseWorkload"]


def test_a_new_authority_changes_the_config_map_alone() -> None:
    stored = applied(Stored(client()))
    renewed = replace(SETTINGS, authority="PEM of old and new")
    assert kinds(stored.live, config_map=config_map_of(stored.live), settings=renewed) == ["ApplyAuthority"]


def test_a_second_workload_owns_the_config_map_too() -> None:
    first, second = applied(Stored(client())), applied(Stored(client("second")))
    known = config_map_of(first.live)
    (again,) = plan_clients([second.live, first.live], known, SETTINGS)
    assert isinstance(again, ApplyAuthority)
    assert [each["name"] for each in again.fields["metadata"]["ownerReferences"]] == ["producer", "second"]
    assert kinds(first.live, second.live, config_map=config_map_of(second.live, first.live)) == []


def test_variables_that_the_owner_has_set_stay() -> None:
    given = client()
    given["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": name, "value": "mine"} for name in ("ROTA_TLS_CA", "ROTA_TOKEN_FILE")
    ]
    stored = applied(Stored(given))
    (app,) = stored.live["spec"]["template"]["spec"]["containers"]
    assert {each["value"] for each in app["env"]} == {"mine"}
    assert kinds(stored.live, config_map=config_map_of(stored.live)) == []


def test_a_group_takes_such_a_workload_over_in_one_request() -> None:
    stored = applied(Stored(client("orders")))
    group = group_of(resource())
    app = container_of(group.spec, stored.live)
    assert app is not None
    spec = SidecarSpec(group, "Deployment", "rota-sidecar:1", SETTINGS, (1, 35))
    stored.apply(adopted_fields(spec, stored.live, app), (do.GRACE_PERIOD_FIELD,))
    assert MANAGED_LABEL not in stored.live["metadata"]["labels"]
    assert kinds(stored.live) == []
    names = [each["name"] for each in stored.live["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert sorted(names) == ["COLOUR", "ROTA_SIDECAR", "ROTA_TLS_CA", "ROTA_TOKEN_FILE"]
