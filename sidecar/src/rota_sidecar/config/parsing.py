"""Parse names, addresses and lists in the text of a flag or a variable."""

import re
from collections.abc import Sequence

ROTA_SCHEME = "rota://"
NAME_CHARACTERS = "letters, digits, '.', '_' and '-'"
NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
PORT_MAX = 65_535


def listed(text: str) -> list[str]:
    """Split a list at its commas; empty parts are dropped."""
    return [part.strip() for part in text.split(",") if part.strip()]


def is_address(text: str, lowest_port: int = 1) -> bool:
    """Return True for HOST:PORT, with an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    has_brackets = len(host) == len(bare) + 2
    return (
        bool(bare)
        and (has_brackets or ":" not in bare)
        and not re.search(r"[\s/@]", bare)
        and port.isascii()
        and port.isdecimal()
        and lowest_port <= int(port) <= PORT_MAX
    )


def is_name(text: str) -> bool:
    """Return True if Kafka accepts the text as the name of a topic or of an instance."""
    return NAME.fullmatch(text) is not None and text not in (".", "..")


def topics_problem(topics: Sequence[str]) -> str:
    """Return which of the names is not valid for a topic, in one sentence; empty: all are."""
    for topic in topics:
        if not is_name(topic):
            return f"invalid topic name {topic!r}; expected 1 to 249 {NAME_CHARACTERS}"
    return ""


def pattern_problem(pattern: str) -> str:
    """Return why a topic pattern is not valid, in one sentence; empty: it is."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"invalid topic pattern {pattern!r}; expected a regular expression ({error})"
    return ""
