"""A replica's processes are what Kubernetes would run, with the addresses and folders of this machine."""

from dataclasses import replace
from pathlib import Path

import pytest

from rota_operator.local.commands import (
    LocalPaths,
    app_command,
    consuming_container,
    policy_of,
    sidecar_command,
)
from rota_operator.manifests.documents import parse_documents
from rota_operator.manifests.resources import (
    ConsumerGroup,
    Manifests,
    NamespacedName,
    Workload,
    collect_resources,
)
from rota_operator.replicas.events import ReplicaPolicy
from tests.operator.manifests.test_resources import ALL, GROUP, SECRET, SETTINGS, WORKLOAD

PATHS = LocalPaths(Path("/venv/bin/python"), "rota://127.0.0.1:7099", Path("/place/.rota"), Path("/tmp/r"))
NAME = NamespacedName("shop", "orders-enricher")
PAGE = "127.0.0.1:7181"


def parts(*texts: str) -> tuple[Manifests, Workload, ConsumerGroup]:
    manifests = collect_resources(parse_documents("examples/orders/all.yaml", "---\n".join(texts or ALL)))
    return manifests, manifests.workloads[NAME], manifests.groups[NAME]


def environment(workload: str) -> dict[str, str]:
    manifests, found, group = parts(GROUP, workload, SECRET, SETTINGS)
    return dict(app_command(manifests, found, group, 1, PATHS).environment)


def test_the_application_is_its_container() -> None:
    manifests, workload, group = parts()
    command = app_command(manifests, workload, group, 2, PATHS)
    assert command.argv == ["python", "-m", "orders"]
    assert command.folder == Path("examples/orders")
    assert command.log == Path("/place/.rota/logs/orders-enricher-2.app.log")
    # A pod's own thirty seconds are less than a drain may take.
    assert command.grace_s == 60


def test_its_environment_has_what_it_asks_for() -> None:
    found = environment(WORKLOAD)
    assert found["RATE"] == "5"
    assert found["TOKEN"] == "s3cret"
    assert found["COLOUR"] == "blue"
    assert found["ROTA_SIDECAR"] == "unix:/tmp/r/orders-enricher-1.sock"
    assert found["PATH"].startswith("/venv/bin:")


def test_its_command_does_not_show_its_environment() -> None:
    manifests, workload, group = parts()
    assert "s3cret" not in repr(app_command(manifests, workload, group, 0, PATHS))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "orders-enricher-1"),
        ("metadata.namespace", "shop"),
        ("spec.nodeName", "localhost"),
        ("status.podIP", "127.0.0.1"),
    ],
)
def test_what_a_pod_knows_of_itself_a_process_knows_too(path: str, value: str) -> None:
    workload = WORKLOAD.replace('value: "5"', f"valueFrom: {{fieldRef: {{fieldPath: {path}}}}}")
    assert environment(workload)["RATE"] == value


def test_variables_stand_for_their_values_in_commands_and_in_each_other() -> None:
    workload = WORKLOAD.replace(
        "[python, -m, orders]", '["orders", "--rate=$(RATE)", "$(NONE)", "$$(RATE)"]'
    ).replace(
        "            - {name: TOKEN",
        '            - {name: TWICE, value: "$(RATE)$(RATE)"}\n            - {name: TOKEN',
    )
    manifests, found, group = parts(GROUP, workload, SECRET, SETTINGS)
    command = app_command(manifests, found, group, 0, PATHS)
    assert command.argv == ["orders", "--rate=5", "$(NONE)", "$(RATE)"]
    assert command.environment["TWICE"] == "55"


def test_every_address_of_rota_is_the_coordinator_beside_us() -> None:
    workload = WORKLOAD.replace('value: "5"', 'value: "rota://rota-coordinator.rota:7070"').replace(
        "[python, -m, orders]", '["orders", "rota://elsewhere/orders", "kafka:9092"]'
    )
    manifests, found, group = parts(GROUP, workload, SECRET, SETTINGS)
    command = app_command(manifests, found, group, 0, PATHS)
    assert command.environment["RATE"] == PATHS.coordinator
    assert command.argv == ["orders", "rota://127.0.0.1:7099/orders", "kafka:9092"]
    assert f"--bootstrap-servers={PATHS.coordinator}" in sidecar_command(found, group, 0, PATHS, PAGE).argv


def test_the_sidecar_is_beside_its_application() -> None:
    _, workload, group = parts()
    command = sidecar_command(workload, group, 1, PATHS, PAGE)
    assert command.argv[:3] == ["/venv/bin/python", "-m", "rota_sidecar"]
    assert "--group-id=shop.orders-enricher" in command.argv
    assert "--listen-socket=/tmp/r/orders-enricher-1.sock" in command.argv
    assert "--settings=/place/.rota/settings/shop.orders-enricher.json" in command.argv
    assert "--state-folder=/place/.rota/state/orders-enricher-1" in command.argv
    assert f"--http-listen={PAGE}" in command.argv
    assert f"--drain-socket={command.drain_socket}" in command.argv
    assert "--fleet-token-file=/tmp/r/orders-enricher-1.secret" in command.argv
    assert command.drain_socket == PATHS.sockets / "orders-enricher-1.drain"


def test_who_ends_has_time_to_drain_and_then_to_end() -> None:
    _, workload, group = parts(GROUP + "  sidecar: {terminationDrainSeconds: 5}\n", *ALL[1:])
    assert policy_of(workload, group) == ReplicaPolicy(grace_ms=30_000, drain_ms=6_000)
    patient = WORKLOAD.replace(
        "      containers:", "      terminationGracePeriodSeconds: 3\n      containers:"
    )
    _, workload, group = parts(GROUP, patient, *ALL[2:])
    assert policy_of(workload, group) == ReplicaPolicy(grace_ms=60_000, drain_ms=46_000)
    assert policy_of(workload, None) == ReplicaPolicy(has_sidecar=False, grace_ms=3_000)


def test_a_workload_of_no_group_has_no_sidecar() -> None:
    manifests, workload, _ = parts()
    assert "ROTA_SIDECAR" not in app_command(manifests, workload, None, 0, PATHS).environment


def test_the_group_names_the_container_that_consumes() -> None:
    second = "        - name: second\n          command: [other]\n"
    group = GROUP + "  sidecar: {container: second}\n"
    _, workload, found = parts(group, WORKLOAD + second, SECRET, SETTINGS)
    assert consuming_container(workload, found).name == "second"
    assert consuming_container(workload, None).name == "app"


def test_brokers_stand_for_the_servers_of_rota_where_they_are_to() -> None:
    manifests, workload, group = parts(
        GROUP, WORKLOAD.replace("orders]", 'orders, "rota://a:1"]'), SECRET, SETTINGS
    )
    paths = replace(PATHS, kafka="127.0.0.1:9092")
    assert "--bootstrap-servers=127.0.0.1:9092" in sidecar_command(workload, group, 0, paths, PAGE).argv
    assert "rota://" not in " ".join(app_command(manifests, workload, group, 0, paths).argv)


def test_a_coordinator_over_records_in_kafka_stays_the_one_beside_us() -> None:
    both = GROUP.replace(
        '["rota://rota-coordinator.rota:7070"]',
        '["broker:9092"]\n  coordination: Rota\n  coordinatorAddress: "rota://far:7070"',
    )
    _, workload, group = parts(both, WORKLOAD, SECRET, SETTINGS)
    paths = replace(PATHS, kafka="127.0.0.1:9092")
    argv = sidecar_command(workload, group, 0, paths, PAGE).argv
    assert "--bootstrap-servers=broker:9092" in argv
    assert "--coordinator-address=127.0.0.1:7099" in argv


def test_a_static_members_name_is_that_of_its_replica() -> None:
    _, workload, group = parts(GROUP + "  membership: {static: true}\n", WORKLOAD, SECRET, SETTINGS)
    assert "--group-instance-id=orders-enricher-3" in sidecar_command(workload, group, 3, PATHS, PAGE).argv
    _, workload, group = parts()
    assert not any("instance-id" in word for word in sidecar_command(workload, group, 3, PATHS, PAGE).argv)
