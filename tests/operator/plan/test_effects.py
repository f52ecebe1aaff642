"""Of each field that works on a laptop there is a test in which a group runs with it: `tests/operator/effects.yaml`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota_operator.plan.supported import IGNORED_FIELDS, UNSUPPORTED_FIELDS
from rota_operator.spec import crd
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import Path as FieldPath
from rota_operator.spec.validation import dotted

ROOT = Path(__file__).parents[3]
EFFECTS: dict[str, str] = yaml.safe_load((ROOT / "tests" / "operator" / "effects.yaml").read_text())


def leaves(schema: dict[str, Any], path: FieldPath = ()) -> Iterator[FieldPath]:
    for name, each in schema["properties"].items():
        if "properties" in each:
            yield from leaves(each, (*path, name))
        else:
            yield *path, name


def works(path: FieldPath) -> bool:
    return not any(path[: len(each)] == tuple(each) for each in (*UNSUPPORTED_FIELDS, *IGNORED_FIELDS))


def test_no_field_that_works_is_left_out() -> None:
    assert sorted(EFFECTS) == sorted(
        dotted(path) for path in leaves(crd.schema_of(ConsumerGroupSpec)) if works(path)
    )


@pytest.mark.parametrize("test", sorted(set(EFFECTS.values())))
def test_each_test_is_there(test: str) -> None:
    file, name = test.split("::")
    assert f"\ndef {name}(" in (ROOT / file).read_text()
