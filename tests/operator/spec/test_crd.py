"""The CustomResourceDefinition says all that the declaration says, in words that the API server knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rota_operator.spec import crd
from rota_operator.spec.model import ConsumerGroupSpec
from tests.operator.spec.test_validation import all_parts
from tests.support.tree import REPO

WRITTEN = REPO / "crds" / "consumergroups.yaml"


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All below one, by their paths."""
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from schemas(below, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from schemas(schema[word], f"{path}[]")


def spec_schema() -> dict[str, Any]:
    schema: dict[str, Any] = crd.schema_of(ConsumerGroupSpec)
    return schema


def test_what_is_committed_is_what_is_declared() -> None:
    assert yaml.safe_load(WRITTEN.read_text()) == crd.definition()


def test_it_is_written_by_the_script_that_make_calls() -> None:
    assert "scripts/generate_crds.py --check" in Path(REPO / "Makefile").read_text()


def test_every_field_is_described() -> None:
    silent = [
        path
        for path, schema in schemas(spec_schema())
        if not path.endswith("[]") and not schema.get("description")
    ]
    assert silent == []


def test_nothing_is_referred_to_and_nothing_is_open_but_what_belongs_to_others() -> None:
    opened = [
        path for path, schema in schemas(spec_schema()) if schema.get("x-kubernetes-preserve-unknown-fields")
    ]
    assert opened == [".spark.template.spec"]
    assert not any("$ref" in schema or "anyOf" in schema for _, schema in schemas(spec_schema()))


def test_every_rule_is_there() -> None:
    said = [
        rule["rule"]
        for _, schema in schemas(spec_schema())
        for rule in schema.get("x-kubernetes-validations", ())
    ]
    declared = [rule.cel for part in all_parts() for rule in part.rules]
    declared += [change.cel for part in all_parts() for change in part.transition_rules]
    assert sorted(set(said)) == sorted(set(declared))


def test_a_field_without_a_value_has_no_default() -> None:
    assert "default" not in spec_schema()["properties"]["groupId"]
    assert spec_schema()["properties"]["membership"]["properties"]["sessionTimeoutSeconds"]["default"] == 45
