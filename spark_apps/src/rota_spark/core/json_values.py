"""Values of records that are JSON objects, as the pipelines' parsers read them: each problem is a text with its remedy."""

import json
from typing import Any

NAME_MAX = 200
# Bytes of a rejected value that are kept.
TEXT_MAX = 1_000


def json_object(value: bytes | None) -> dict[str, Any] | str:
    """Read a JSON object; return a sentence that says what is wrong if the value is not one."""
    if value is None:
        return "the record has no value"
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        return f"the value is not JSON: {type(error).__name__}"
    return found if isinstance(found, dict) else "the value is not a JSON object"


def name_problem(fields: dict[str, Any], name: str) -> str | None:
    """Return what is wrong with a name; None: nothing. Characters that a database refuses are not printable."""
    value = fields.get(name)
    if isinstance(value, str) and 1 <= len(value) <= NAME_MAX and value.isprintable():
        return None
    return f"{described(name, fields)}: set it to 1 to {NAME_MAX} printable characters"


def text_of(value: bytes | None) -> str | None:
    """Return a value as text that every database stores, shortened; bytes that are not text are escaped."""
    if value is None:
        return None
    return value[:TEXT_MAX].decode(errors="backslashreplace").replace("\0", "\\x00")


def described(name: str, fields: dict[str, Any]) -> str:
    """Return the beginning of a message about a field."""
    return f"{name} is missing" if fields.get(name) is None else f"{name} is invalid"
