"""
Validates manifests: parsed YAML in, a frozen spec out, or InvalidSpec with one message for each invalid field.

Called by the operator for every change of a ConsumerGroup and by the local runner for every resource.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.names import EXPECTED
from rota_operator.spec.schema import SpecModel

ModelT = TypeVar("ModelT", bound=SpecModel)
Path = tuple[str | int, ...]
# By pydantic's error type: the error message, which follows the field's path. Other types keep pydantic's
# message.
MESSAGES = {
    "missing": "is required",
    "extra_forbidden": "is an unknown field; correct its name or remove it",
    "string_type": "must be a string; put it in quotes",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "literal_error": "must be {expected}; got {input}",
    "string_pattern_mismatch": "must match {pattern}; got {input}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have {min_length} or more elements",
    "too_long": "must have at most {max_length} elements",
    "greater_than": "must be greater than {gt}; got {input}",
    "greater_than_equal": "must be at least {ge}; got {input}",
    "less_than_equal": "must be at most {le}; got {input}",
    "rule": "{wrong}",
}
INPUT_LENGTH_MAX = 80
NUL = "\0"
UNUSABLE = (
    "must not contain NUL or lone surrogates, which no argument, environment variable or request can hold"
)


class FieldError(NamedTuple):
    """Path of an invalid field, and the error."""

    path: Path
    message: str

    @property
    def full_message(self) -> str:
        """The error, beginning with the path."""
        return f"{dotted(self.path)} {self.message}"


class InvalidSpec(Exception):
    """The manifest is invalid; `errors` has one entry for each invalid field."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(field_error.full_message for field_error in errors))
        self.errors = errors


def parse_model(kind: type[ModelT], value: object, path: Path) -> ModelT:
    """Validate a parsed value at a path of a manifest. Raises InvalidSpec."""
    if unusable := [FieldError(path, UNUSABLE) for path in _unusable(value, path)]:
        raise InvalidSpec(unusable)
    try:
        return kind.model_validate_json(json.dumps(value))
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise InvalidSpec(
            [_field_error(each, path) for each in found if not _is_consequence(each, found)]
        ) from None


def parse_spec(spec: Mapping[str, Any]) -> ConsumerGroupSpec:
    """Validate the spec of a ConsumerGroup. Raises InvalidSpec."""
    return parse_model(ConsumerGroupSpec, spec, ("spec",))


def spec_of(resource: Mapping[str, Any]) -> ConsumerGroupSpec | None:
    """Return the spec of a ConsumerGroup; None if it is invalid."""
    try:
        return parse_spec(resource.get("spec") or {})
    except InvalidSpec:
        return None


def check_update(was: ConsumerGroupSpec, spec: ConsumerGroupSpec) -> None:
    """Check that immutable fields are unchanged. Raises InvalidSpec."""
    errors = [
        FieldError(("spec",), each.message) for each in spec.transition_rules if not each.holds(was, spec)
    ]
    if errors:
        raise InvalidSpec(errors)


def _unusable(value: object, path: Path) -> Iterator[Path]:
    """Yield the paths of strings with NUL or lone surrogates, which no process or request can be given."""
    if isinstance(value, str):
        if NUL in value or (not value.isascii() and value != value.encode(errors="replace").decode()):
            yield path
    elif isinstance(value, dict):
        for name, element in value.items():
            yield from _unusable(name, (*path, name))
            yield from _unusable(element, (*path, name))
    elif isinstance(value, list):
        for number, element in enumerate(value):
            yield from _unusable(element, (*path, number))


def _is_consequence(error: ErrorDetails, others: Sequence[ErrorDetails]) -> bool:
    """True if a list is too short only because its elements are invalid."""
    location = error["loc"]
    return error["type"] == "too_short" and any(
        len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in others
    )


def _field_error(error: ErrorDetails, path: Path) -> FieldError:
    values = {"input": _abbreviated(error["input"]), **error.get("ctx", {})}
    # pydantic appends "[key]" to the path of an invalid field name.
    path = (*path, *(each for each in error["loc"] if each != "[key]"))
    if (expected := EXPECTED.get(values.get("pattern", ""))) is not None:
        return FieldError(path, f"must be {expected}; got {values['input']}")
    message = MESSAGES.get(error["type"])
    return FieldError(path, error["msg"] if message is None else message.format(**values))


def _abbreviated(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= INPUT_LENGTH_MAX else f"{text[:INPUT_LENGTH_MAX]}…"


def dotted(path: Path) -> str:
    """Format a path as in spec.topics[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
