"""What a text among the options is: a name, an address, a list."""

import re

NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
PORT_MAX = 65_535


def listed(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def is_address(text: str, lowest_port: int = 1) -> bool:
    """Whether that is HOST:PORT, with an IPv6 address in brackets."""
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
    """Whether Kafka takes it as the name of a topic or of an instance."""
    return NAME.fullmatch(text) is not None and text not in (".", "..")
