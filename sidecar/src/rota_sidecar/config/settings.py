"""
Read a group's settings: from JSON, and as values of the flags that they stand for.

The message GroupSettings is the schema: names, types and structure come from its descriptor, the bounds of a value from
its flag. Used by `loading`, for the file `--settings` and for Fleet's order `Configure`. Settings are refused as a whole.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from rota_proto.fleet.v1.settings_pb2 import GroupSettings
from rota_sidecar.config.flag_types import ConfigError, Flag, Unacceptable, quoted
from rota_sidecar.config.flags import BY_SETTING, SECONDS_MAX

if TYPE_CHECKING:
    from google._upb._message import FieldDescriptor as UpbFieldDescriptor

    Field = FieldDescriptor | UpbFieldDescriptor

BYTES_MAX = 256 << 10
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
MODE, URL = "delivery.mode", "delivery.http.url"
MODES = ("pull", "http")
# Fields of a spec that may stand in the file although the operator acts on them.
OPERATOR_FIELDS = frozenset({"membership.rackTopologyKey", "offsets.reset"})
# Fields that may also be a JSON list: of strategies, while a group moves from one to another.
LISTS = frozenset({"assignment.strategy"})

# By type of field: which JSON values are accepted, and the words for them.
SCALARS: Mapping[int, tuple[Callable[[Any], bool], str]] = {
    FieldDescriptor.CPPTYPE_BOOL: (lambda value: isinstance(value, bool), "true or false, without quotes"),
    FieldDescriptor.CPPTYPE_INT32: (
        lambda value: type(value) is int and INT32_MIN <= value <= INT32_MAX,
        "an integer of 32 bits, without quotes",
    ),
    FieldDescriptor.CPPTYPE_DOUBLE: (
        lambda value: type(value) in (int, float) and abs(value) < SECONDS_MAX,
        f"a number below {SECONDS_MAX:g}, without quotes",
    ),
    FieldDescriptor.CPPTYPE_STRING: (lambda value: isinstance(value, str), "a string, in quotes"),
}


def read_file(file: Path) -> GroupSettings:
    """Read the settings of a file. Raises ConfigError."""
    try:
        with file.open("rb") as content:
            data = content.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"--settings {file} cannot be read ({error.strerror}); check its path and its permissions"
        ) from None
    try:
        return parse_json(data)
    except ConfigError as error:
        raise ConfigError(f"--settings {file}: {error}") from None


def parse_json(data: bytes) -> GroupSettings:
    """Parse settings; stricter than protobuf's own JSON: no value is coerced. Raises ConfigError."""
    if len(data) > BYTES_MAX:
        raise ConfigError(f"the settings are larger than {BYTES_MAX} bytes; shorten them")
    settings = GroupSettings()
    try:
        held = json.loads(data)
        if not isinstance(held, dict):
            raise ConfigError('the settings must be a JSON object, for example {"suspend": false}')
        _fill(settings, held, "")
    # The second is also raised for a text that UTF-8 cannot express.
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"the settings are not valid JSON ({error}); correct them") from None
    return settings


def values_of(settings: GroupSettings) -> Mapping[Flag[Any], object]:
    """Return the values of the flags that the settings stand for. Raises ConfigError."""
    if settings.ByteSize() > BYTES_MAX:
        raise ConfigError(f"the settings are larger than {BYTES_MAX} bytes; shorten them")
    _refuse_unknown_fields(settings, "")
    leaves = dict(_leaves(settings, ""))
    _check_mode(leaves.pop(MODE, None), bool(leaves.get(URL)))
    return {BY_SETTING[path]: _value(BY_SETTING[path], value) for path, value in leaves.items()}


def _value(flag: Flag[Any], value: object) -> object:
    assert flag.setting is not None
    path = flag.setting.path
    try:
        return flag.read(path, flag.setting.convert(value))
    except Unacceptable as error:
        raise ConfigError(f"{path} {error}") from None


def _fill(message: Message, held: Mapping[str, Any], prefix: str) -> None:
    """Set the fields of a message from a JSON object."""
    fields = message.DESCRIPTOR.fields_by_camelcase_name
    for key, value in held.items():
        path = prefix + key
        if path in OPERATOR_FIELDS:
            continue
        if key not in fields:
            known = ", ".join(sorted(prefix + name for name in fields))
            raise ConfigError(f"unknown setting {path}; expected one of {known}")
        _set(message, fields[key], path, value)


def _set(message: Message, field: "Field", path: str, value: Any) -> None:  # noqa: ANN401  any JSON
    """Set one field from a JSON value."""
    if path in LISTS and isinstance(value, list):
        value = ",".join(_texts(path, value))
    if field.is_repeated and field.message_type is not None:
        held = _object(path, value)
        of_values = field.message_type.fields_by_name["value"]
        getattr(message, field.name).update(
            {key: _scalar(of_values, f"{path}.{key}", each) for key, each in held.items()}
        )
    elif field.is_repeated:
        getattr(message, field.name).extend(_texts(path, value))
    elif field.message_type is not None:
        part: Message = getattr(message, field.name)
        part.SetInParent()
        _fill(part, _object(path, value), f"{path}.")
    else:
        setattr(message, field.name, _scalar(field, path, value))


def _object(path: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must be a JSON object")
    return value


def _texts(path: str, value: object) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f'{path} must be a list of names, for example ["orders"]')
    return value


def _scalar(field: "Field", path: str, value: Any) -> object:  # noqa: ANN401  any JSON
    """Return a JSON value of the field's type. True is not an integer."""
    is_accepted, expected = SCALARS[field.cpp_type]
    if not is_accepted(value):
        raise ConfigError(f"{path} must be {expected}")
    return value


def _leaves(message: Message, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields that are set, by path."""
    for field, value in message.ListFields():
        path = prefix + field.camelcase_name
        if field.message_type is not None and not field.is_repeated:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _refuse_unknown_fields(message: Message, prefix: str) -> None:
    """Refuse fields of a newer schema: a setting that is not applied must not be accepted."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = f"{prefix}{unknown[0].field_number}"
        raise ConfigError(
            f"this version of the sidecar does not know the setting with the number {number}; update it"
        )
    for field, value in message.ListFields():
        if field.message_type is not None and not field.is_repeated:
            _refuse_unknown_fields(value, f"{prefix}{field.camelcase_name}.")


def _check_mode(mode: str | None, has_url: bool) -> None:
    """Refuse a mode that contradicts the URL."""
    if mode is not None and mode not in MODES:
        raise ConfigError(f"{MODE} is {quoted(mode)}; expected one of {', '.join(MODES)}")
    if mode == "http" and not has_url:
        raise ConfigError(f"{MODE} is http; set {URL} too")
    if mode == "pull" and has_url:
        raise ConfigError(f"{URL} has no effect while {MODE} is pull; set {MODE} to http, or remove the URL")
