"""The principals of a keytab, parsed from its bytes, so that `kerberos.py` can name what a login lacks."""

import struct

VERSION = b"\x05\x02"
ENTRY_SIZE = struct.Struct(">i")
LENGTH = struct.Struct(">H")
# Keytabs have a few kilobytes.
BYTES_MAX = 2**20


class NoKeytab(Exception):
    """The bytes are not those of a keytab."""


def principals_in(data: bytes) -> tuple[str, ...]:
    """Return the principals, each once, in the order of their first keys. Raises NoKeytab."""
    if not data.startswith(VERSION) or len(data) > BYTES_MAX:
        raise NoKeytab
    found: list[str] = []
    position = len(VERSION)
    try:
        while position < len(data):
            (size,) = ENTRY_SIZE.unpack_from(data, position)
            position += ENTRY_SIZE.size
            if size == 0:
                break
            if size > 0:
                found.append(_principal(data[position : position + size]))
            # A removed entry leaves a hole, which has its size as a negative number.
            position += abs(size)
    except (struct.error, UnicodeDecodeError):
        raise NoKeytab from None
    return tuple(dict.fromkeys(found))


def has_principal(name: str, principals: tuple[str, ...]) -> bool:
    """Return true if one of them has this name; a name without a realm is one of any realm."""
    if "@" in name:
        return name in principals
    return name in [principal.rpartition("@")[0] for principal in principals]


def _principal(entry: bytes) -> str:
    (components,) = LENGTH.unpack_from(entry)
    texts: list[str] = []
    position = LENGTH.size
    for _ in range(components + 1):
        (length,) = LENGTH.unpack_from(entry, position)
        position += LENGTH.size
        if position + length > len(entry):
            raise NoKeytab
        texts.append(entry[position : position + length].decode())
        position += length
    realm, *names = texts
    return f"{'/'.join(names)}@{realm}"
