"""Names in manifests obey Kubernetes' rules before they become paths, arguments, variables or labels; nothing is written elsewhere."""

import sys
from pathlib import Path

import pytest

from rota_operator.__main__ import main
from rota_operator.manifests.documents import InvalidManifest, parse_documents
from rota_operator.manifests.resources import collect_resources
from tests.operator.manifests.test_resources import ALL, GROUP, SECRET, SETTINGS, WORKLOAD

SUBDOMAIN = "must be a lowercase RFC 1123 subdomain: "
LABEL = "must be a lowercase RFC 1123 label: "
TRAVERSAL = "../../../pwned"
# In YAML's double quotes.
NO_SUBDOMAINS = (
    TRAVERSAL, "/etc/passwd", "a/b", "a\\\\b", ".", "..", ".a", "a.", "a..b", "-a", "a-", "A", "a b", "a_b", "ä", "a\\0", "\\0",
    "a\\n", "a\\e[2J", "a\\u202eb", "$(RATE)", "~", "--help", "a\\ud800", "",
)  # fmt: skip


def refused(*texts: str) -> list[str]:
    with pytest.raises(InvalidManifest) as refusal:
        collect_resources(parse_documents("all.yaml", "---\n".join(texts)))
    said = str(refusal.value).splitlines()
    assert all(each.isprintable() for each in said), said
    return said


@pytest.mark.parametrize("name", NO_SUBDOMAINS)
@pytest.mark.parametrize("kind", range(4), ids=["ConsumerGroup", "Deployment", "Secret", "ConfigMap"])
def test_no_resource_has_a_name_that_is_no_subdomain(kind: int, name: str) -> None:
    text = ALL[kind].replace("{name: ", f'{{name: "{name}", was: ', 1).replace(", was: orders-enricher", "")
    text = text.replace(", was: bank", "").replace(", was: settings", "")
    (said,) = refused(text)
    assert said.startswith("all.yaml:3: metadata.name "), said


def test_the_message_says_which_name_where_and_what_is_expected() -> None:
    (said,) = refused(SETTINGS, SECRET.replace("name: bank", f"name: {TRAVERSAL}"))
    assert said.startswith(f"all.yaml:8: metadata.name {SUBDOMAIN}lowercase letters, digits, ")
    assert said.endswith(f'; got "{TRAVERSAL}"')


@pytest.mark.parametrize("namespace", [*NO_SUBDOMAINS, "a.b", "a" * 64])
def test_a_namespace_is_one_label(namespace: str) -> None:
    (said,) = refused(SETTINGS.replace("namespace: shop", f'namespace: "{namespace}"'))
    assert said.startswith("all.yaml:3: metadata.namespace "), said


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((WORKLOAD.replace("name: app\n", "name: a/b\n"),), f"spec.template.spec.containers[0].name {LABEL}"),
        ((WORKLOAD.replace("name: app\n", "name: a.b\n"),), f"spec.template.spec.containers[0].name {LABEL}"),
        ((GROUP + "  sidecar: {container: ../app}\n",), f"spec.sidecar.container {LABEL}"),
        ((GROUP.replace("Ref: {name: ", "Ref: {name: ../"),), f"spec.scaleTargetRef.name {SUBDOMAIN}"),
        ((WORKLOAD.replace("name: bank", "name: ../bank"),), "spec.template.spec.containers[0].env[1].valueFrom.secretKeyRef.name "),
        ((WORKLOAD.replace("key: token", "key: ../t"),), "spec.template.spec.containers[0].env[1].valueFrom.secretKeyRef.key "),
        ((WORKLOAD.replace("name: settings", "name: a/b"),), "spec.template.spec.containers[0].envFrom[0].configMapRef.name "),
        ((WORKLOAD.replace("- configMapRef", '- prefix: "A="\n              configMapRef'),), "spec.template.spec.containers[0].envFrom[0].prefix "),
        ((WORKLOAD.replace("{app: orders}}\nspec", "{app: ../orders}}\nspec"),), "metadata.labels.app must be a label value: "),
        ((WORKLOAD.replace("{app: orders}}\nspec", "{a/b/c: orders}}\nspec"),), "metadata.labels.a/b/c must be a label key: "),
        ((SETTINGS.replace("COLOUR", '"A=B"'),), "data.A=B must be a key of a Secret or ConfigMap: "),
        ((SETTINGS.replace("COLOUR", "../a"),), "data.../a must be a key of a Secret or ConfigMap: "),
        ((SECRET.replace("user", "u/ser"),), "stringData.u/ser must be a key of a Secret or ConfigMap: "),
        ((GROUP + "  membership: {rackTopologyKey: ../rack}\n",), "spec.membership.rackTopologyKey must be a label key: "),
        ((GROUP + "  delivery: {deadLetterTopic: ../dead}\n",), "spec.delivery.deadLetterTopic "),
        ((GROUP + '  groupId: "a\\eb"\n',), "spec.groupId must be text without control characters; "),
        ((GROUP + '  groupId: "a\\nb"\n',), "spec.groupId must be text without control characters; "),
    ],
)  # fmt: skip
def test_what_refers_to_names_has_their_rules(texts: tuple[str, ...], message: str) -> None:
    (said,) = refused(*texts)
    assert said.partition(": ")[2].startswith(message), said


@pytest.mark.parametrize("character", ["\\0", "\\ud800"], ids=["NUL", "half a character"])
@pytest.mark.parametrize(
    ("text", "was", "path"),
    [
        (WORKLOAD, "-m", "spec.template.spec.containers[0].command[1]"),
        (WORKLOAD, '"5"', "spec.template.spec.containers[0].env[0].value"),
        (WORKLOAD, "name: app\n", "spec.template.spec.containers[0].workingDir"),
        (GROUP, "orders]", "spec.topics[0]"),
        (GROUP, "topics: [orders]", "spec.topicPattern"),
        (SECRET, "me}", "stringData.user"),
        (SETTINGS, "blue", "data.COLOUR"),
    ],
)
def test_what_no_argument_or_variable_can_hold_is_refused(
    text: str, was: str, path: str, character: str
) -> None:
    value = f'"a{character}b"'
    put = {
        "name: app\n": f"name: app\n          workingDir: {value}\n",
        "orders]": f"{value}]",
        "topics: [orders]": f"topicPattern: {value}",
        "me}": f"{value}}}",
    }.get(was, value)
    (said,) = refused(text.replace(was, put, 1))
    assert said.partition(": ")[2].startswith(f"{path} must not contain NUL or lone surrogates"), said


def test_a_secret_with_nul_is_no_variable() -> None:
    (said,) = refused(GROUP, WORKLOAD, SECRET.replace("czNjcmV0", "YQBi"), SETTINGS)
    assert (
        "containers[0].env[1].valueFrom.secretKeyRef: Secret bank in namespace shop has NUL in token" in said
    )


def test_a_secret_with_nul_that_is_no_variable_is_kept() -> None:
    keystore = SECRET.replace("\ndata: {", "\ndata: {keystore: YQBi, ")
    texts = (GROUP, WORKLOAD, keystore, SETTINGS)
    collect_resources(parse_documents("all.yaml", "---\n".join(texts)))


@pytest.mark.parametrize("text", ['kind: "a\\e[2Jb"\n', 'kind: Secret\n"a\\e[2Jb": 1\n"a\\e[2Jb": 2\n'])
def test_what_is_wrong_is_said_without_the_terminal_s_own_commands(text: str) -> None:
    assert "\\x1b[2J" in refused(text)[0]


@pytest.mark.parametrize(
    "other",
    [
        WORKLOAD.replace("namespace: shop", "namespace: other"),
        WORKLOAD.replace("Deployment", "StatefulSet"),
    ],
    ids=["in another namespace", "of another kind"],
)
def test_two_workloads_do_not_share_their_replicas_files(other: str) -> None:
    there = (SECRET + "---\n" + SETTINGS).replace("namespace: shop", "namespace: other")
    (said,) = refused(*ALL, other, *([there] if "namespace: other" in other else []))
    assert "metadata.name is in use by Deployment orders-enricher in namespace shop, whose replicas" in said


@pytest.mark.parametrize("kind", [0, 1], ids=["ConsumerGroup", "Deployment"])
def test_a_name_fits_into_a_label_and_the_path_of_a_socket(kind: int) -> None:
    (said,) = refused(ALL[kind].replace("orders-enricher", "a" * 64, 1))
    assert said == "all.yaml:3: metadata.name must have at most 63 characters, like every label value"


def test_nothing_is_written_outside_of_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "one" / "two" / "three"
    folder.mkdir(parents=True)
    texts = [each.replace("orders-enricher", TRAVERSAL) for each in (GROUP, WORKLOAD)]
    (folder / "all.yaml").write_text("---\n".join((*texts, SECRET, SETTINGS)))
    home = folder / ".rota"
    monkeypatch.setattr(sys, "argv", ["rota-operator", "local", "-f", str(folder), f"--home={home}"])
    with pytest.raises(SystemExit, match=r"metadata\.name must be a lowercase RFC 1123 subdomain"):
        main()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "all.yaml"]
