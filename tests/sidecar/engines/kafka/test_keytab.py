"""Keytabs as bytes: the principals of their keys, and what is none."""

import struct

import pytest

from rota_sidecar.engines.kafka.keytab import BYTES_MAX, VERSION, NoKeytab, has_principal, principals_in


def entry(realm: str, *components: str) -> bytes:
    texts = b"".join(struct.pack(">H", len(text)) + text.encode() for text in (realm, *components))
    body = struct.pack(">H", len(components)) + texts + b"\0" * 20
    return struct.pack(">i", len(body)) + body


def test_principals_are_listed_once_each_in_the_order_of_their_keys() -> None:
    keys = entry("ROTA.TEST", "kafka", "localhost") + entry("ROTA.TEST", "rota") + entry("ROTA.TEST", "rota")
    assert principals_in(VERSION + keys) == ("kafka/localhost@ROTA.TEST", "rota@ROTA.TEST")


def test_removed_keys_are_passed_over() -> None:
    hole = struct.pack(">i", -7) + b"\xff" * 7
    assert principals_in(VERSION + hole + entry("ROTA.TEST", "rota")) == ("rota@ROTA.TEST",)
    assert principals_in(VERSION + entry("ROTA.TEST", "rota") + b"\0" * 8) == ("rota@ROTA.TEST",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x05\x01" + entry("ROTA.TEST", "rota"),
        VERSION + b"\x00",
        VERSION + entry("ROTA.TEST", "rota")[:12],
        VERSION + struct.pack(">i", 6) + struct.pack(">HHH", 1, 1, 65),
        VERSION + entry("ROTA.TEST", "rota").replace(b"rota", b"\xff\xff\xff\xff"),
        VERSION + b"\0" * BYTES_MAX,
    ],
    ids=[
        "empty",
        "old format",
        "half a length",
        "half an entry",
        "a text beyond its entry",
        "no text",
        "long",
    ],
)
def test_other_bytes_are_no_keytab(data: bytes) -> None:
    with pytest.raises(NoKeytab):
        principals_in(data)


def test_a_name_without_a_realm_is_one_of_any_realm() -> None:
    principals = ("rota@ROTA.TEST", "kafka/localhost@ROTA.TEST")
    for name in ("rota", "rota@ROTA.TEST", "kafka/localhost"):
        assert has_principal(name, principals)
    for name in ("rot", "rota@OTHER.TEST", "kafka", "localhost"):
        assert not has_principal(name, principals)
