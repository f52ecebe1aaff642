"""Keys are hashed as Kafka's own clients hash them."""

import pytest

from rota.producer.partitioner import hash_of
from rota_proto.log.keys import murmur2

# Of Kafka's own tests of its Java client, where the hash is a signed number.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), KNOWN.items())
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0x7FFF_FFFF


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 5_000])
def test_what_is_remembered_is_what_was_computed(length: int) -> None:
    key = b"k" * length
    assert [hash_of(key), hash_of(key)] == [murmur2(key)] * 2
