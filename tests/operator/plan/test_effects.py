"""Of each field there is a test of what it does, on a laptop and in a cluster, or it is refused: `tests/operator/effects.yaml`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota_operator.plan.supported import IGNORED_FIELDS, UNSUPPORTED_FIELDS, Backend
from rota_operator.spec import crd
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import Path as FieldPath
from rota_operator.spec.validation import dotted

ROOT = Path(__file__).parents[3]
EFFECTS: dict[str, dict[str, str]] = yaml.safe_load(
    (ROOT / "tests" / "operator" / "effects.yaml").read_text()
)


def leaves(schema: dict[str, Any], path: FieldPath = ()) -> Iterator[FieldPath]:
    for name, each in schema["properties"].items():
        if "properties" in each:
            yield from leaves(each, (*path, name))
        else:
            yield *path, name


REFUSED = "not supported yet"
LEAVES = list(leaves(crd.schema_of(ConsumerGroupSpec)))
TESTS = {test for columns in EFFECTS.values() for test in columns.values() if test != REFUSED}


def works(path: FieldPath, backend: Backend) -> bool:
    ignored = tuple(IGNORED_FIELDS) if backend is Backend.LOCAL else ()
    return not any(path[: len(each)] == tuple(each) for each in (*UNSUPPORTED_FIELDS[backend], *ignored))


def test_no_field_is_left_out() -> None:
    assert list(EFFECTS) == [dotted(path) for path in LEAVES]


def test_each_field_that_works_on_a_laptop_has_its_test() -> None:
    tested = [field for field, columns in EFFECTS.items() if "laptop" in columns]
    assert tested == [dotted(path) for path in LEAVES if works(path, Backend.LOCAL)]


@pytest.mark.parametrize("path", LEAVES, ids=dotted)
def test_each_field_has_its_test_in_a_cluster_or_is_refused(path: FieldPath) -> None:
    assert (EFFECTS[dotted(path)]["cluster"] != REFUSED) is works(path, Backend.CLUSTER)


@pytest.mark.parametrize("test", sorted(TESTS))
def test_each_test_is_there(test: str) -> None:
    file, name = test.split("::")
    assert f"\ndef {name}(" in (ROOT / file).read_text()
