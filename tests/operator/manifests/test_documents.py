"""YAML is read with the place of every value; what could mean two things is refused with its line."""

import pytest

from rota_operator.manifests.documents import Document, InvalidManifest, parse_documents

TWO = """\
# A group.
apiVersion: rota.dev/v1alpha1
kind: ConsumerGroup
spec:
  topics:
    - orders

    - payments
  replicas: 3
---
---
kind: Secret
data: {a: b}
"""


def read(text: str) -> list[Document]:
    return parse_documents("group.yaml", text)


def refused(text: str) -> str:
    with pytest.raises(InvalidManifest) as refusal:
        read(text)
    return str(refusal.value)


def test_every_document_is_a_value_with_its_lines() -> None:
    group, secret = read(TWO)
    assert group.value == {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "spec": {"topics": ["orders", "payments"], "replicas": 3},
    }
    assert (group.kind, secret.kind) == ("ConsumerGroup", "Secret")
    assert group.lines["spec", "topics", 1] == 8
    assert group.lines["spec", "replicas"] == 9
    assert secret.lines["data", "a"] == 13


def test_an_error_is_reported_with_its_line() -> None:
    group, _ = read(TWO)
    assert group.wrong(("spec", "replicas"), "spec.replicas is 3").whole == "group.yaml:9: spec.replicas is 3"


def test_what_is_missing_is_looked_for_where_it_should_be() -> None:
    group, _ = read(TWO)
    assert group.wrong(("spec", "delivery", "http"), "is missing").line == 4


def test_a_list_is_what_is_in_it() -> None:
    first, second = read("kind: List\nitems:\n- kind: Secret\n- kind: ConfigMap\n  data:\n    a: b\n")
    assert (first.kind, second.kind) == ("Secret", "ConfigMap")
    assert second.lines["data", "a"] == 6


def test_a_time_is_a_text_as_it_is_for_kubernetes() -> None:
    (document,) = read("to: 2026-09-20T00:00:00Z\n")
    assert document.value == {"to": "2026-09-20T00:00:00Z"}


def test_a_file_without_resources_is_none() -> None:
    assert read("") == read("# nothing\n---\n") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [\n", "group.yaml:3: invalid YAML: "),
        ("a: 1\n\ta: 2\n", "group.yaml:2: invalid YAML: "),
        ("a: \x07\n", "group.yaml:1: invalid YAML: "),
        ("- a\n", "group.yaml:1: the document must be a resource with apiVersion and kind"),
        ("a: 1\nb: 2\na: 3\n", "group.yaml:3: duplicate key a; remove one"),
        ("a: 1\n1: 2\n", "group.yaml:2: the key '1' must be a string; put it in quotes"),
        ("a: !!python/object:os.system x\n", "group.yaml:1: unsupported tag tag:yaml.org,2002:python/object:os.system"),
        ("a: !mine x\n", "group.yaml:1: unsupported tag !mine; remove it"),
        ("a: !!int x\n", "group.yaml:1: x is not a valid int; put it in quotes if it is text"),
        ("kind: List\nitems:\n- 1\n", "group.yaml:3: items[0] must be a resource"),
        ("a: *b\n", "group.yaml:1: invalid YAML: found undefined alias 'b'"),
    ],
)  # fmt: skip
def test_what_means_nothing_or_two_things_is_refused(text: str, message: str) -> None:
    assert refused(text).startswith(message)


def test_a_document_that_is_many_times_itself_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 4)}]" for n in range(1, 12)
    ]
    assert "more than 100000 values" in refused("\n".join(lines))


def test_a_document_within_itself_is_refused() -> None:
    assert "levels deep" in refused("a: &a\n  b: *a\n")
