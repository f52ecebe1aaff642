"""The fields that Rota adds to a workload: exactly these, the same for the same spec, and gone when it is released."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota_operator.reconcile import actions as do
from rota_operator.reconcile.adoption import AFTER_DRAIN_S, fields
from rota_operator.reconcile.group import group_of
from rota_operator.reconcile.observed import OperatorSettings, WorkloadRef
from rota_operator.reconcile.ownership import is_applied
from rota_operator.reconcile.settings import RESTART_PATHS, settings_hash, settings_text
from rota_operator.reconcile.sidecar import SidecarSpec
from rota_operator.reconcile.target import container_of
from rota_operator.spec.conditions import Reason
from rota_sidecar.config.flags import BY_SETTING
from rota_sidecar.config.loading import read_sources
from tests.operator.reconcile.api_server import Stored
from tests.operator.reconcile.worlds import ORDERS, SETTINGS, World, kinds, resource, workload

Json = Any
PAYMENTS = WorkloadRef("StatefulSet", "payments")
KAFKA = {"bootstrapServers": ["kafka:9093"]}
AUTH = {
    "tls": {
        "caCertSecret": {"name": "kafka-ca", "key": "authority.pem"},
        "certSecret": {"name": "kafka-user", "key": "user.crt"},
        "keySecret": {"name": "kafka-user", "key": "user.key"},
    },
    "sasl": {
        "mechanism": "SCRAM-SHA-512",
        "userSecret": {"name": "login", "key": "name"},
        "passwordSecret": {"name": "login", "key": "word"},
    },
}


def body(
    target: Json = None,
    version: tuple[int, int] = (1, 35),
    settings: OperatorSettings = SETTINGS,
    **spec: Json,
) -> Json:
    """The request for a spec."""
    group = group_of(resource(**spec))
    live = Stored(target or workload()).live
    app = container_of(group.spec, live)
    assert app is not None
    return fields(SidecarSpec(group, live["kind"], "rota-sidecar:1", settings, version), live, app)


def pod(**given: Json) -> Json:
    return body(**given)["spec"]["template"]["spec"]


def sidecar(**given: Json) -> Json:
    (found,) = pod(**given)["initContainers"]
    return found


def volumes(**given: Json) -> Mapping[str, Json]:
    return {each["name"]: each for each in pod(**given)["volumes"]}


def environment(**given: Json) -> Mapping[str, Json]:
    return {each["name"]: each.get("value") or each["valueFrom"] for each in sidecar(**given)["env"]}


def test_the_whole_request_for_a_small_group() -> None:
    found = body()
    assert found == body()
    labels = {do.CLAIM_LABEL: "0b9e", do.GROUP_LABEL: "orders"}
    assert found["metadata"] == {"namespace": "shop", "name": "orders", "labels": labels}
    assert found["spec"]["template"]["metadata"]["labels"] == labels
    assert pod() == {
        "containers": [
            {
                "name": "app",
                "env": [
                    {"name": "ROTA_SIDECAR", "value": "unix:///var/run/rota/app.sock"},
                    {"name": "ROTA_TLS_CA", "value": "/var/run/secrets/rota/ca.crt"},
                    {"name": "ROTA_TOKEN_FILE", "value": "/var/run/secrets/rota/token"},
                ],
                "volumeMounts": [
                    {"name": "rota-token", "mountPath": "/var/run/secrets/rota", "readOnly": True},
                    {"name": "rota-app", "mountPath": "/var/run/rota"},
                ],
                "lifecycle": {"preStop": {"httpGet": {"path": "/drained", "port": 7081}}},
            }
        ],
        "initContainers": [sidecar()],
        "volumes": [
            {"name": "rota-app", "emptyDir": {}},
            {"name": "rota-settings", "configMap": {"name": "rota-orders"}},
            {"name": "rota-state", "emptyDir": {}},
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
                                "name": "rota-orders",
                                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                            }
                        },
                    ]
                },
            },
        ],
        "terminationGracePeriodSeconds": 60,
    }


def test_the_sidecar_is_native_probed_by_name_and_restricted() -> None:
    found = sidecar()
    assert (found["name"], found["restartPolicy"], found["image"]) == (
        "rota-sidecar",
        "Always",
        "rota-sidecar:1",
    )
    assert found["ports"] == [{"name": "rota-http", "containerPort": 7081, "protocol": "TCP"}]
    # Startup on readiness would wait for an application that waits for it.
    probes = {name: found[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {
        "startupProbe": {"path": "/livez", "port": "rota-http"},
        "livenessProbe": {"path": "/livez", "port": "rota-http"},
        "readinessProbe": {"path": "/readyz", "port": "rota-http"},
    }
    assert found["lifecycle"]["preStop"]["exec"]["command"][-2:] == ["drain", "--for-ms=75000"]
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": 65532,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_sidecar_has_these_flags() -> None:
    assert sidecar()["args"] == [
        "--group-id=shop.orders",
        "--bootstrap-servers=rota://rota:7070",
        "--drain-timeout-ms=45000",
        "--settings=/etc/rota/settings/settings.json",
        "--listen=",
        "--listen-socket=/var/run/rota/app.sock",
        "--listen-socket-mode=0666",
        "--http-listen=0.0.0.0:7081",
        "--state-folder=/var/lib/rota/member",
        "--fleet=rota-operator.rota:7083",
        "--token-file=/var/run/secrets/rota/token",
        "--client-id=$(POD_NAME)",
        f"--settings-hash={settings_hash(group_of(resource()).spec)}",
        "--log-format=json",
        "--rota-tls-ca=/etc/rota/settings/ca.crt",
    ]
    assert environment()["ROTA_DRAIN_SOCKET"] == "/var/lib/rota/drain.sock"


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        (replace(SETTINGS, authority=""), ["--rota-tls"]),
        (replace(SETTINGS, authority="", insecure=True), ["--insecure", "--no-rota-tls"]),
        (replace(SETTINGS, insecure=True), ["--insecure", "--rota-tls-ca=/etc/rota/settings/ca.crt"]),
    ],
)
def test_rotas_own_servers_are_trusted_as_the_operator_is_set(
    settings: OperatorSettings, flags: list[str]
) -> None:
    assert sidecar(settings=settings)["args"][-len(flags) :] == flags
    assert sidecar(settings=settings)["args"][-len(flags) - 1] == "--log-format=json"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {**KAFKA, "auth": AUTH},
        {**KAFKA, "config": {"fetch.min.bytes": "1000", "isolation.level": "read_committed"}},
        {**KAFKA, "coordination": "Rota", "coordinatorAddress": "rota://rota:7070"},
        {"config": {"isolation.level": "read_committed"}},
        {"delivery": {"mode": "http", "http": {"url": "http://127.0.0.1:8080/"}}},
    ],
)
def test_the_sidecar_understands_its_flags_and_its_settings(spec: Json, tmp_path: Path) -> None:
    """As it reads them, with the variables that the kubelet expands."""
    file = tmp_path / "settings.json"
    file.write_text(settings_text(group_of(resource(**spec)).spec))
    variables = {"ROTA_DRAIN_SOCKET": "/var/lib/rota/drain.sock", "ROTA_RACK": "a"}
    for given in (SETTINGS, replace(SETTINGS, authority=""), replace(SETTINGS, authority="", insecure=True)):
        arguments = [
            word.replace("$(POD_NAME)", "orders-a").replace("/etc/rota/settings/settings.json", str(file))
            for word in sidecar(settings=given, **spec)["args"]
        ]
        config = read_sources(arguments, variables).config()
        assert config.listeners.drain_socket == Path("/var/lib/rota/drain.sock")
        assert config.member.group_id == "shop.orders"


def test_the_kubelet_expands_nothing_that_the_user_wrote() -> None:
    assert sidecar(groupId="a$(POD_NAME)$$b")["args"][0] == "--group-id=a$$(POD_NAME)$$$$b"


def test_credentials_are_files_of_the_sidecar_alone() -> None:
    found = sidecar(**KAFKA, auth=AUTH)
    assert found["args"][-7:] == [
        "--tls",
        "--sasl-mechanism=SCRAM-SHA-512",
        "--tls-ca=/etc/rota/auth/ca.crt",
        "--tls-cert=/etc/rota/auth/tls.crt",
        "--tls-key=/etc/rota/auth/tls.key",
        "--sasl-username-file=/etc/rota/auth/username",
        "--sasl-password-file=/etc/rota/auth/password",
    ]
    assert volumes(**KAFKA, auth=AUTH)["rota-auth"]["projected"]["sources"] == [
        {"secret": {"name": name, "items": [{"key": key, "path": path}]}}
        for name, key, path in (
            ("kafka-ca", "authority.pem", "ca.crt"),
            ("kafka-user", "user.crt", "tls.crt"),
            ("kafka-user", "user.key", "tls.key"),
            ("login", "name", "username"),
            ("login", "word", "password"),
        )
    ]
    mounts = {each["name"] for each in pod(**KAFKA, auth=AUTH)["containers"][0]["volumeMounts"]}
    assert mounts == {"rota-app", "rota-token"}
    assert "rota-auth" in {each["name"] for each in found["volumeMounts"]}


@pytest.mark.parametrize(
    ("version", "key", "field", "excerpt"),
    [
        ((1, 35), None, "metadata.labels['topology.kubernetes.io/zone']", ""),
        ((1, 36), "topology.kubernetes.io/region", "metadata.labels['topology.kubernetes.io/region']", ""),
        ((1, 34), None, None, "Kubernetes 1.34 does not copy the label"),
        ((1, 35), "example.com/rack", None, "the label example.com/rack of a node is not copied"),
        ((1, 35), "", None, ""),
    ],
)
def test_a_member_has_the_rack_that_its_pod_knows(
    version: tuple[int, int], key: str | None, field: str | None, excerpt: str
) -> None:
    spec = {} if key is None else {"membership": {"rackTopologyKey": key}}
    expected = None if field is None else {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}
    assert environment(version=version, **spec).get("ROTA_RACK") == expected
    remarks = World(resource(**spec), version=version).plan().remarks
    assert [each.reason for each in remarks] == ([Reason.NO_RACK] if excerpt else [])
    assert excerpt in "".join(each.message for each in remarks)


def test_pods_of_a_stateful_set_are_static_members_by_their_names() -> None:
    target = {"kind": "StatefulSet", "name": "payments"}
    found = sidecar(target=workload(PAYMENTS), membership={"static": True}, scaleTargetRef=target)
    assert "--group-instance-id=$(POD_NAME)" in {*found["args"]} - {*sidecar()["args"]}


def test_pods_of_a_deployment_are_static_members_without_a_name_of_their_own() -> None:
    assert "--static" in sidecar(membership={"static": True})["args"]


def test_the_sidecar_has_the_resources_and_the_pulling_that_the_spec_gives() -> None:
    given = {
        "resources": {"limits": {"memory": "128Mi"}, "requests": {"memory": "64Mi", "cpu": "50m"}},
        "imagePullPolicy": "Never",
        "imagePullSecrets": ["b", "a", "b"],
    }
    found = sidecar(sidecar=given)
    assert json.dumps(found["resources"]) == json.dumps(
        {"limits": {"memory": "128Mi"}, "requests": {"cpu": "50m", "memory": "64Mi"}}
    )
    assert found["imagePullPolicy"] == "Never"
    assert pod(sidecar=given)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert "imagePullSecrets" not in pod()


def test_the_container_that_consumes_is_the_one_that_is_named() -> None:
    target = workload(containers=[{"name": "proxy", "image": "a"}, {"name": "app", "image": "b"}])
    assert pod(target=target)["containers"][0]["name"] == "proxy"
    assert pod(target=target, sidecar={"container": "app"})["containers"][0]["name"] == "app"


def test_a_pre_stop_of_the_owner_stays_and_is_remarked() -> None:
    own = {"name": "app", "image": "a", "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}
    world = World(workloads={ORDERS: Stored(workload(containers=[own]))})
    for _ in range(2):
        assert [each.reason for each in world.reconcile().remarks] == [Reason.PRE_STOP_KEPT]
        assert world.pod()["containers"][0]["lifecycle"] == own["lifecycle"]
    assert kinds(world.plan()) == ["Configure"]


def test_our_own_pre_stop_is_not_taken_for_the_owners() -> None:
    world = World()
    world.reconcile()
    assert (kinds(world.plan()), world.plan().remarks) == (["Configure"], ())


@pytest.mark.parametrize(
    ("owners_s", "drain_s", "seconds", "saved"),
    [
        (None, 45, 60, None),
        (30, 45, 60, None),
        (40, 45, 60, "40"),
        (60, 45, None, None),
        (300, 45, None, None),
        (None, 10, None, None),
    ],
)
def test_the_grace_period_is_raised_only_if_it_is_too_short(
    owners_s: int | None, drain_s: int, seconds: int | None, saved: str | None
) -> None:
    target = workload(**({} if owners_s is None else {"terminationGracePeriodSeconds": owners_s}))
    found = body(target=target, sidecar={"terminationDrainSeconds": drain_s})
    assert found["spec"]["template"]["spec"].get("terminationGracePeriodSeconds") == seconds
    assert found["metadata"].get("annotations", {}).get(do.GRACE_PERIOD_ANNOTATION) == saved
    assert seconds is None or seconds == drain_s + AFTER_DRAIN_S


@pytest.mark.parametrize("owners_s", [None, 30, 40, 300])
def test_a_raised_grace_period_follows_the_drain_and_ends_as_the_owner_had_it(owners_s: int | None) -> None:
    given = {} if owners_s is None else {"terminationGracePeriodSeconds": owners_s}
    world = World(workloads={ORDERS: Stored(workload(**given))})
    before = world.workloads[ORDERS].body
    for drain_s in (45, 60, 5, 20, 45):
        world.edit(sidecar={"terminationDrainSeconds": drain_s})
        assert kinds(world.reconcile()).count("AdoptWorkload") <= 1
        assert world.pod()["terminationGracePeriodSeconds"] >= max(drain_s + AFTER_DRAIN_S, owners_s or 30)
        assert kinds(world.plan()) == ["Configure"]
    world.delete()
    world.reconcile()
    assert world.workloads[ORDERS].body == before


def test_an_owner_who_takes_the_grace_period_back_keeps_it_if_it_is_long_enough() -> None:
    world = World()
    world.reconcile()
    path = ("spec", "template", "spec", "terminationGracePeriodSeconds")
    world.workloads[ORDERS].put(path, 90)
    world.reconcile()
    assert world.pod()["terminationGracePeriodSeconds"] == 90
    world.workloads[ORDERS].put(path, 20)
    world.reconcile()
    assert world.pod()["terminationGracePeriodSeconds"] == 60
    world.delete()
    world.reconcile()
    assert world.pod()["terminationGracePeriodSeconds"] == 20


@pytest.mark.parametrize(
    ("manifest_s", "owners_s", "said"),
    [
        (None, None, ""),
        (30, 30, "terminationGracePeriodSeconds 30 of Deployment orders is too short for the drain"),
        (None, 40, "Rota raises it to 60 after each kubectl apply, which restarts the pods; set it to 60"),
        (60, 60, ""),
    ],
)
def test_an_owner_whose_manifest_sets_a_grace_period_that_is_too_short_learns_the_seconds(
    manifest_s: int | None, owners_s: int | None, said: str
) -> None:
    stored = Stored(workload(**({} if owners_s is None else {"terminationGracePeriodSeconds": owners_s})))
    if manifest_s is not None:
        stored.kubectl_apply_grace_period(manifest_s)
    world = World(workloads={ORDERS: stored})
    for _ in range(2):
        remarks = [each for each in world.reconcile().remarks if each.reason == Reason.GRACE_PERIOD_RAISED]
        assert [said in each.message for each in remarks] == ([True] if said else [])


@pytest.mark.parametrize("before_s", [None, 30, 40])
def test_an_owner_who_sets_the_seconds_that_rota_needs_has_the_field_and_no_pod_restarts(
    before_s: int | None,
) -> None:
    stored = Stored(workload(**({} if before_s is None else {"terminationGracePeriodSeconds": before_s})))
    world = World(workloads={ORDERS: stored})
    world.reconcile()
    pod = world.pod()
    stored.kubectl_apply_grace_period(60)
    assert "RestoreGracePeriod" in kinds(world.reconcile())
    decision = world.reconcile()
    assert kinds(world.plan()) == ["Configure"]
    assert world.pod() == pod
    assert Reason.GRACE_PERIOD_RAISED not in [each.reason for each in decision.remarks]
    world.edit(sidecar={"terminationDrainSeconds": 60})
    world.reconcile()
    assert world.pod()["terminationGracePeriodSeconds"] == 75
    world.delete()
    world.reconcile()
    assert world.pod()["terminationGracePeriodSeconds"] == 60


def test_an_owner_who_confirms_the_seconds_keeps_them_if_the_group_is_deleted_at_once() -> None:
    stored = Stored(workload(terminationGracePeriodSeconds=40))
    world = World(workloads={ORDERS: stored})
    world.reconcile()
    stored.kubectl_apply_grace_period(60)
    world.delete()
    world.reconcile()
    assert world.pod()["terminationGracePeriodSeconds"] == 60


@pytest.mark.parametrize(
    "change",
    [
        lambda live: live["spec"]["template"]["spec"].pop("initContainers"),
        lambda live: live["spec"]["template"]["spec"]["initContainers"][0].update(image="other"),
        lambda live: live["spec"]["template"]["spec"]["containers"][0]["env"].pop(),
        lambda live: live["metadata"]["labels"].update({do.CLAIM_LABEL: "other"}),
        lambda live: live["metadata"].pop("managedFields"),
        lambda live: live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"].update({"f:replicas": {}}),
        lambda live: live["metadata"]["managedFields"][1]["fieldsV1"].pop("f:metadata"),
    ],
)
def test_a_difference_in_values_or_in_ownership_is_seen(change: Any) -> None:  # noqa: ANN401
    world = World()
    world.reconcile()
    live, wanted = world.workloads[ORDERS].live, body()
    assert is_applied(live, wanted)
    change(live)
    assert not is_applied(live, wanted)


@pytest.mark.parametrize(
    ("written", "rewritten", "is_equal"),
    [
        ("0.05", "50m", True),
        ("1024Mi", "1Gi", True),
        ("1000m", "1", True),
        ("1", "2", False),
    ],
)
def test_a_quantity_is_equal_however_it_is_written(written: str, rewritten: str, is_equal: bool) -> None:
    given = {"resources": {"requests": {"cpu": written}}}
    world = World(resource(sidecar=given))
    world.reconcile()
    live = world.workloads[ORDERS].live
    live["spec"]["template"]["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = rewritten
    assert is_applied(live, body(sidecar=given)) is is_equal


def test_defaults_of_the_api_server_are_no_difference() -> None:
    world = World()
    world.reconcile()
    live = world.workloads[ORDERS].live
    template = live["spec"]["template"]["spec"]
    template["initContainers"][0]["terminationMessagePath"] = "/dev/termination-log"
    template["initContainers"][0]["readinessProbe"]["httpGet"]["scheme"] = "HTTP"
    template["volumes"][1]["configMap"]["defaultMode"] = 420
    owned = live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
    # As the API server writes them: an element has a dot for itself, and a reference is owned whole.
    container = owned["f:initContainers"]['k:{"name":"rota-sidecar"}']
    container["."] = {}
    container["f:env"]['k:{"name":"POD_NAME"}']["f:valueFrom"] = {"f:fieldRef": {}}
    assert is_applied(live, body())


def test_what_needs_a_restart_is_what_the_sidecar_refuses_to_change() -> None:
    fixed = {path for path, flag in BY_SETTING.items() if flag.setting is not None and flag.setting.is_fixed}
    assert {".".join(path) for path in RESTART_PATHS} == fixed


@pytest.mark.parametrize("path", RESTART_PATHS)
def test_the_hash_changes_with_each_of_these_and_with_nothing_else(path: tuple[str, ...]) -> None:
    before = group_of(resource()).spec
    others: Mapping[tuple[str, ...], Json] = {
        ("assignment", "maxMovedPartitionsPercent"): {"assignment": {"maxMovedPartitionsPercent": 7}},
        ("delivery", "http", "url"): {
            "delivery": {"mode": "http", "http": {"url": "http://127.0.0.1:8080/"}}
        },
        ("delivery", "ordering"): {"delivery": {"ordering": "key"}},
        ("delivery", "timeout"): {"delivery": {"timeout": "PT7S"}},
        ("membership", "heartbeatIntervalSeconds"): {"membership": {"heartbeatIntervalSeconds": 7}},
        ("membership", "rebalanceTimeoutSeconds"): {"membership": {"rebalanceTimeoutSeconds": 7}},
        ("membership", "sessionTimeoutSeconds"): {"membership": {"sessionTimeoutSeconds": 70}},
        ("membership", "static"): {"membership": {"static": True}},
    }
    assert settings_hash(group_of(resource(**others[path])).spec) != settings_hash(before)
    assert settings_hash(group_of(resource(topics=["other"], suspend=True)).spec) == settings_hash(before)


def test_applying_the_same_again_is_the_same_object() -> None:
    world = World()
    world.reconcile()
    before = copy.deepcopy(world.workloads[ORDERS].body)
    world.workloads[ORDERS].apply(body(target=None), (do.GRACE_PERIOD_FIELD,))
    assert world.workloads[ORDERS].body == before
