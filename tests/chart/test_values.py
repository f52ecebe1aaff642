"""Values of the chart: every file renders, twice the same; each value changes something, and the schema knows exactly these."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota_coordinator.options import add_groups, add_quotas, add_topics, option_error, parse
from rota_coordinator.security.policy import Action, TopicAction
from rota_coordinator.security.principals import parse as parse_principals
from rota_operator.certificates.options import add_flags as add_certificate_flags
from rota_operator.certificates.options import flags_error
from rota_operator.cluster.config import add_flags, config_of, error_in
from rota_operator.cluster.kafka_access import read_credentials
from rota_operator.spec.validation import parse_spec
from tests.chart.rendered import FILES, KAFKA, VALUES, VARIANTS, container, leaves, named, of, of_kind, pods
from tests.support import helm
from tests.support.helm import CHART, Object
from tests.support.tree import REPO

pytestmark = pytest.mark.process

SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())
CRD = REPO / "crds" / "consumergroups.yaml"
Path_ = tuple[str, ...]
# In the path of a schema of lists' items.
ITEM = "[]"
# The values select which others are used: each set renders a part of them.
MODES: tuple[Object, ...] = (
    {"tls.source": "job", "coordinator.store.type": "sqlite", "coordinator.authentication": "kubernetes", "coordinator.tokensSecret.name": ""},
    {"tls.source": "cert-manager", "coordinator.store.type": "postgresql", "coordinator.authentication": "tokens"},
    {"tls.source": "secret", "coordinator.store.type": "sqlite", "coordinator.authentication": "none"},
)  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_renders_twice_the_same(variant: str) -> None:
    assert helm.prepare().text(*VARIANTS[variant]) == helm.rendered(*VARIANTS[variant])


@pytest.mark.parametrize("file", FILES)
def test_helm_finds_nothing_wrong(file: str) -> None:
    helm.prepare().run("lint", "--strict", CHART, *FILES[file])


def sentinel(dotted: str, value: Any, number: int) -> tuple[Any, str]:  # noqa: ANN401  a value of YAML
    """Return a value of the same type that is different from all others, and the text that shows it; a switch has none."""
    text = f"zz{number}zz"
    if isinstance(value, bool):
        return True, ""
    if dotted == "coordinator.flags":
        return {text: number}, text
    if dotted == "coordinator.grants":
        return [{"namespace": "a", "serviceAccount": "b", "permissions": [text]}], text
    if dotted == "kafka.clusters":
        login = {"saslMechanism": "OAUTHBEARER", "tokenEndpointUrl": "https://a/token", "secret": "a"}
        return [{"name": text, "bootstrapServers": ["a:9092"], **login}], text
    if dotted == "watchNamespaces":
        return [text], text
    if isinstance(value, int) or (isinstance(value, list) and value):
        number += 900_000
        return [number] if isinstance(value, list) else number, str(number)
    given = [{text: text}] if isinstance(value, list) else {text: text} if isinstance(value, dict) else text
    return given, text


def sentinels(mode: Object) -> tuple[Object, dict[Path_, str]]:
    """Return values that are all different from each other, and the text that shows each; switches are on."""
    values: Object = {}
    shown: dict[Path_, str] = {}
    for number, (path, value) in enumerate(leaves(VALUES)):
        dotted = ".".join(path)
        given, text = (mode[dotted], "") if dotted in mode else sentinel(dotted, value, number)
        if text:
            shown[path] = text
        at = values
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = given
    return values, shown


def unused(folder: Path) -> Iterator[Path_]:
    """Yield the values, switches aside, that no template uses in any mode."""
    found: set[Path_] = set()
    wanted: set[Path_] = set()
    for number, mode in enumerate(MODES):
        # A digest takes precedence over a tag, and a tag of a part over that of all.
        without: Object = {}
        for part in ("operator", "sidecar", "coordinator"):
            if number != 1:
                without[f"{part}.image.digest"] = ""
            if number == 2:
                without[f"{part}.image.tag"] = ""
        replicas = {"coordinator.replicas": 1} if mode["coordinator.store.type"] == "sqlite" else {}
        # A list of clients takes precedence over the watched namespaces, a claim that exists over one of the chart's.
        others = (
            {"networkPolicy.clients": [], "coordinator.store.sqlite.existingClaim": ""} if number == 2 else {}
        )
        values, shown = sentinels({**mode, **without, **replicas, **others})
        file = folder / f"values-{number}.json"
        file.write_text(json.dumps(values))
        text = helm.prepare().text("--skip-schema-validation", f"--values={file}")
        wanted |= shown.keys()
        found |= {path for path, sentinel in shown.items() if sentinel in text}
    yield from wanted - found


def test_every_value_is_used(tmp_path: Path) -> None:
    assert sorted(unused(tmp_path)) == []


def test_every_switch_changes_something() -> None:
    # Monitors need none of the others; a budget needs a second replica.
    more = ("--set=coordinator.store.type=postgresql,coordinator.store.postgresql.urlSecret.name=a", "--set=coordinator.replicas=2")  # fmt: skip
    switches = [(".".join(path), value) for path, value in leaves(VALUES) if isinstance(value, bool)]
    assert len(switches) > 12
    unchanged = []
    for switch, value in switches:
        base = () if "sqlite" in switch else more
        names = ("--set=operator.serviceAccount.name=a,coordinator.serviceAccount.name=b",)
        plain, changed = (
            helm.prepare().text(*base, *names, f"--set={switch}={each}") for each in ("true", "false")
        )
        if plain == changed:
            unchanged.append((switch, value))
    assert unchanged == []


def properties(schema: Object, path: Path_ = ()) -> Iterator[tuple[Path_, Object]]:
    """Yield every object schema and every leaf schema by its path."""
    schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from properties(each, (*path, name))
    if "properties" in schema.get("items", {}):
        yield from properties(schema["items"], (*path, ITEM))


def test_the_schema_has_exactly_the_values() -> None:
    known = {path for path, schema in properties(SCHEMA) if "properties" not in schema}
    # Flags are listed in the schema alone; `global` is Helm's.
    known = {
        path
        for path in known
        if ITEM not in path and path[:2] != ("coordinator", "flags") and path != ("global",)
    }
    given = {path for path, _ in leaves(VALUES) if path != ("coordinator", "flags")}
    assert known == given


def test_the_schema_accepts_no_unknown_name() -> None:
    objects = [(path, schema) for path, schema in properties(SCHEMA) if "properties" in schema]
    assert len(objects) > 20
    assert [path for path, schema in objects if schema.get("additionalProperties") is not False] == []


def test_the_flags_of_the_schema_are_those_of_the_coordinator() -> None:
    flags = SCHEMA["properties"]["coordinator"]["properties"]["flags"]["properties"]
    parser = argparse.ArgumentParser()
    for add in (add_groups, add_quotas, add_topics):
        add(parser)
    integers = {
        action.option_strings[0].removeprefix("--") for action in parser._actions if action.type is int
    }
    assert integers | {"slot-lease-ms"} == set(flags)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_operator_accepts_its_flags(variant: str) -> None:
    command, *flags = container(of(variant), "Deployment", "rota-operator")["args"]
    assert command == "cluster"
    parser = argparse.ArgumentParser()
    add_flags(parser)
    config = config_of(parser.parse_args(flags), "", "pod")
    assert error_in(config) == ""
    assert config.lease_name == "rota-operator"
    # Its address is in its certificate.
    assert config.fleet_address == "rota-operator.rota:7083"


@pytest.mark.parametrize("variant", [each for each in VARIANTS if each != "without coordinator"])
def test_the_coordinator_accepts_its_flags(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = container(of(variant), "StatefulSet", "rota-coordinator")
    if "ROTA_STORE" in {each["name"] for each in found["env"]}:
        monkeypatch.setenv("ROTA_STORE", "postgresql://rota@db/rota?sslmode=verify-full")
    options = parse(found["args"])
    assert option_error(options) == ""
    assert options.log == options.store.startswith("sqlite:")


def test_the_coordinator_accepts_its_grants() -> None:
    grants = "--set-json=coordinator.grants=" + json.dumps(
        [
            {
                "namespace": "shop",
                "serviceAccount": "orders",
                "permissions": ["legacy-orders", "admin:shop.*"],
            },
            {"namespace": "shop", "permissions": ["topics:orders", "quota:groups=10"]},
            {"permissions": ["consume:public-*"]},
        ]
    )
    objects = helm.render(grants)
    found = parse_principals(
        named(objects, "ConfigMap", "rota-coordinator-grants")["data"]["grants"], "grants"
    )
    assert set(found.by_name) == {
        "system:serviceaccount:rota:rota-operator",
        "system:serviceaccount:shop:orders",
        "system:serviceaccounts:shop",
        "system:serviceaccounts",
    }
    assert all(each.is_service_account for each in found.by_name.values())
    operator = found.grants_of_pods("system:serviceaccount:rota:rota-operator")
    assert operator is not None
    assert "any.group" in operator.groups[Action.ADMIN]
    assert "any-topic" in operator.topics[TopicAction.CONSUME]
    everyone = found.grants_of_pods("system:serviceaccounts")
    assert everyone is not None
    assert "any.group" not in everyone.groups[Action.READ]
    arguments = container(objects, "StatefulSet", "rota-coordinator")["args"]
    assert {"--token-review", "--tokens-file=/etc/rota/tokens/tokens"} <= set(arguments)
    assert "--insecure" not in arguments


def test_the_list_of_kafka_clusters_is_one_that_the_operator_reads_and_no_secret_is_in_it(
    tmp_path: Path,
) -> None:
    objects = of("Kafka clusters")
    pod = dict(pods(objects))["Deployment/rota-operator"]["spec"]
    (mounted,) = (each["projected"]["sources"] for each in pod["volumes"] if each["name"] == "kafka")
    name = mounted[0]["configMap"]["name"]
    text = named(objects, "ConfigMap", name)["data"]["clusters.yaml"]
    assert "kafka-main" not in text
    (tmp_path / "clusters.yaml").write_text(text)
    # Where the Secret's keys are mounted.
    assert [each["secret"]["name"] for each in mounted[1:]] == ["kafka-main"]
    assert mounted[1]["secret"]["optional"] is True
    for item in mounted[1]["secret"]["items"]:
        file = tmp_path / item["path"]
        file.parent.mkdir(exist_ok=True)
        file.write_text("text")
    credentials = read_credentials(tmp_path)
    for address, group_id, problem in (
        ("kafka.kafka:9093", "shop.orders", ""),
        ("kafka.kafka:9093", "orders-eu", ""),
        ("open.kafka:9092", "shop.orders", ""),
        ("kafka.kafka:9093", "orders", "groups shop.* only"),
    ):
        given = {"bootstrapServers": [address], "topics": ["orders"], "scaleTargetRef": {"name": "orders"}}
        access = credentials.access(parse_spec(given), "shop", group_id)
        assert problem in access.problem
        assert bool(access.properties) != bool(problem)
    other = helm.render("--set-json=kafka.clusters=" + json.dumps(KAFKA[1:]))
    assert name not in {each["metadata"]["name"] for each in of_kind(other, "ConfigMap")}


def certificates(variant: str) -> dict[str, tuple[str, ...]]:
    """Return the DNS names that certificates of a variant have, by their Secrets."""
    objects = of(variant)
    if found := of_kind(objects, "Certificate"):
        return {each["spec"]["secretName"]: tuple(each["spec"]["dnsNames"]) for each in found}
    (job,) = of_kind(objects, "Job")
    command, *flags = container(objects, "Job", job["metadata"]["name"])["args"]
    assert command == "certificates"
    parser = argparse.ArgumentParser()
    add_certificate_flags(parser)
    options = parser.parse_args(flags)
    assert flags_error(options) == ""
    return {each.name: each.dns_names for each in options.certificate}


@pytest.mark.parametrize("variant", ["values.yaml", "values-cert-manager.yaml", "values-postgresql.yaml"])
def test_certificates_have_the_names_that_clients_use(variant: str) -> None:
    objects = of(variant)
    names = certificates(variant)
    assert "rota-operator.rota" in names["rota-operator-tls"]
    assert {"rota-coordinator.rota", "*.rota-coordinator-pods.rota"} <= set(names["rota-coordinator-tls"])
    for kind, name in (("Deployment", "rota-operator"), ("StatefulSet", "rota-coordinator")):
        volumes = {each["name"]: each for each in dict(pods(objects))[f"{kind}/{name}"]["spec"]["volumes"]}
        assert volumes["tls"]["secret"]["secretName"] == f"{name}-tls"


def test_the_job_and_cert_manager_issue_the_same_names() -> None:
    assert certificates("values.yaml") == certificates("values-cert-manager.yaml")


def test_a_changed_job_has_another_name() -> None:
    one, other = (
        of_kind(helm.render(*arguments), "Job")[0] for arguments in ((), ("--set=tls.job.days=30",))
    )
    assert one["spec"] != other["spec"]
    assert one["metadata"]["name"] != other["metadata"]["name"]


def test_the_crd_is_the_generated_one() -> None:
    (rendered,) = of_kind(of("values.yaml"), "CustomResourceDefinition")
    wanted = yaml.load(CRD.read_text(), yaml.CSafeLoader)
    # Not popped: other tests read the same rendering.
    metadata = rendered["metadata"]
    assert metadata["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert metadata["labels"]["app.kubernetes.io/component"] == "crds"
    assert metadata.keys() - wanted["metadata"].keys() == {"annotations", "labels"}
    assert {**rendered, "metadata": {name: metadata[name] for name in wanted["metadata"]}} == wanted
    # Numbers and texts are as they were written, too.
    assert CRD.read_text().partition("spec:\n")[2] in helm.rendered()
    assert (CHART / "files" / "consumergroups.yaml").read_text() == CRD.read_text()


def test_without_the_crd() -> None:
    assert of_kind(of("values-namespaced.yaml"), "CustomResourceDefinition") == []
    (rendered,) = of_kind(helm.render("--set=crds.keep=false"), "CustomResourceDefinition")
    assert "annotations" not in rendered["metadata"]


def test_no_variant_draws_a_secret() -> None:
    for variant in VARIANTS:
        assert [each for each in of_kind(of(variant), "Secret") if {"data", "stringData"} & each.keys()] == []
    templates = "".join(file.read_text() for file in (CHART / "templates").rglob("*") if file.is_file())
    drawn = (
        "genCA",
        "genSelfSignedCert",
        "genSignedCert",
        "genPrivateKey",
        "rand\\w+",
        "uuidv4",
        "now",
        "lookup",
    )
    assert re.findall(rf"\{{\{{[^}}]*\b({'|'.join(drawn)})\b", templates) == []


def test_the_notes_name_the_next_command() -> None:
    said = helm.prepare().run("install", "rota", CHART, "--namespace", "rota", "--dry-run=client", *FILES["values-namespaced.yaml"])  # fmt: skip
    notes = said.partition("\nNOTES:\n")[2]
    assert "helm test rota -n rota" in notes
    assert "kubectl apply -f examples/orders/" in notes
    assert "--clusterrole=system:auth-delegator" in notes
    assert "rota://rota-coordinator.rota:7070" in notes


def test_large_numbers_keep_their_notation(tmp_path: Path) -> None:
    """Helm reads a number of a file as a floating-point one, and prints those above a million with an exponent."""
    file = tmp_path / "values.yaml"
    user, size = 1_000_680_000, 68_719_476_736
    file.write_text(
        f"podSecurity: {{user: {user}, group: {user}}}\ncoordinator: {{flags: {{quota-log-bytes: {size}}}}}\n"
    )
    objects = helm.render(f"--values={file}")
    for _, pod in pods(objects):
        context = pod["spec"]["securityContext"]
        assert [context[field] for field in ("runAsUser", "runAsGroup", "fsGroup")] == [user] * 3
    assert f"--quota-log-bytes={size}" in container(objects, "StatefulSet", "rota-coordinator")["args"]
    text = helm.rendered(f"--values={file}")
    assert f"runAsUser: {user}\n" in text
    assert "e+" not in text


def test_the_default_is_locked() -> None:
    locked, open_ = helm.rendered(), helm.rendered(*FILES["values-quickstart.yaml"])
    assert {"--token-review", "--tls-cert=/etc/rota/tls/tls.crt"} <= set(locked.split())
    assert "--insecure" not in locked
    assert "--insecure" in open_
