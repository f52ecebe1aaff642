"""A manifest with one wrong field, whichever it is, gives one sentence with file, line and field, and nothing is started."""

import copy
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota_operator.__main__ import main
from rota_operator.spec.validation import dotted
from tests.operator.spec.manifests import whole

pytestmark = pytest.mark.process

Manifest = dict[str, Any]
At = tuple[str | int, ...]
# Stands where nothing like it may stand; its line is the one below the wrong field's name.
WRONG = "wrong-here"
# Whose names are free: what is wrong is a value in there.
VALUES = {"config", "requests", "limits", "priorities", "labels", "annotations", "data", "stringData"}
METADATA: Manifest = {
    "name": "orders-enricher",
    "namespace": "shop",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
}
GROUP: Manifest = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "ConsumerGroup",
    "metadata": METADATA,
    "spec": whole(),
}
CONTAINER: Manifest = {
    "name": "app",
    "command": ["python"],
    "args": ["-m", "orders"],
    "workingDir": "orders",
    "env": [
        {"name": "RATE", "value": "5"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "bank", "key": "token", "optional": True}}},
        {
            "name": "COLOUR",
            "valueFrom": {"configMapKeyRef": {"name": "look", "key": "colour", "optional": True}},
        },
        {"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
    ],
    "envFrom": [
        {"prefix": "A_", "secretRef": {"name": "bank", "optional": True}},
        {"prefix": "B_", "configMapRef": {"name": "look", "optional": True}},
    ],
}
WORKLOAD: Manifest = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": METADATA,
    "spec": {
        "replicas": 3,
        "template": {
            "metadata": copy.deepcopy(METADATA),
            "spec": {"terminationGracePeriodSeconds": 30, "containers": [CONTAINER]},
        },
    },
}
SECRET: Manifest = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": METADATA,
    "data": {"a": "YQ=="},
    "stringData": {"b": "c"},
}
SETTINGS: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"a": "b"}}
KINDS = {each["kind"]: each for each in (GROUP, WORKLOAD, SECRET, SETTINGS)}


def fields(held: object, path: At = ()) -> Iterator[At]:
    """All fields: of those with fields both they and theirs, of lists each element."""
    if path:
        yield path
    if isinstance(held, dict) and not (path and path[-1] in VALUES):
        for name, value in held.items():
            yield from fields(value, (*path, name))
    elif isinstance(held, list):
        for number, value in enumerate(held):
            yield from fields(value, (*path, number))


def with_wrong(manifest: Manifest, path: At) -> Manifest:
    """The same, but that one field is wrong."""
    found = copy.deepcopy(manifest)
    held: Any = found
    for name in path[:-1]:
        held = held[name]
    was = held[path[-1]]
    # A list where there are fields, fields where there is anything else, and no value is a list.
    is_a_mapping = isinstance(was, dict) and path[-1] not in VALUES
    held[path[-1]] = [WRONG] if is_a_mapping else {WRONG: []}
    return found


def said_of(
    path: At, manifest: Manifest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[str]]:
    """Output of the command for these manifests, and the file that was wrong."""
    file = folder / "all.yaml"
    file.write_text(yaml.safe_dump(manifest, sort_keys=False))
    monkeypatch.setattr(sys, "argv", ["local", "local", "-f", str(folder), f"--home={folder / '.rota'}"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, str), "it went on"
    return file, ended.value.code.splitlines()


# What a Spark operator takes is looked at by nobody here.
FREE = ("spec", "spark", "template", "spec", "type")
CASES = [(kind, path) for kind, manifest in KINDS.items() for path in fields(manifest) if path != FREE]


@pytest.mark.parametrize(
    ("kind", "path"), CASES, ids=lambda each: each if isinstance(each, str) else dotted(each)
)
def test_each_wrong_field_is_reported_with_its_path(
    kind: str, path: At, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, said = said_of(path, with_wrong(KINDS[kind], path), tmp_path, monkeypatch)
    assert len(said) == 1, said
    (diagnostic,) = said
    lines = file.read_text().splitlines()
    below = next(number for number, line in enumerate(lines, 1) if WRONG in line)
    # In a list an element begins on the line of its dash, and so does what is wrong inside of free names.
    assert re.match(rf"{re.escape(str(file))}:({below - 1}|{below}): ", diagnostic), diagnostic
    text = diagnostic.removeprefix(f"{file}:").partition(": ")[2]
    assert re.search(r"\b(must|is required|expected|not found|remove|use)\b", text), diagnostic
    if path not in (("kind",), ("metadata",)):
        assert text.startswith(dotted(path)), diagnostic
    assert not (tmp_path / ".rota").exists()
