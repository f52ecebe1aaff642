"""Checksums are those of RFC 3720, for data of any length, and the multiples that fold long data are multiples."""

import random

import pytest

from rota_sidecar.engines.kafka.python_client.crc32c import (
    ALL_ONES,
    CHUNK_BYTES,
    FOLDED_BITS_MIN,
    SPARSE_MULTIPLES,
    TABLE,
    crc32c,
)

# Castagnoli's polynomial, highest exponent first.
POLYNOMIAL = 0x1_1EDC_6F41
DEGREE = 32
BORDERS = [
    FOLDED_BITS_MIN // 8,
    CHUNK_BYTES,
    *(degree * 2**power // 8 for degree, _ in SPARSE_MULTIPLES for power in range(5)),
]


def by_table(data: bytes) -> int:
    crc = ALL_ONES
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ ALL_ONES


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE306_9283),
        (bytes(32), 0x8A91_36AA),
        (b"\xff" * 32, 0x62A8_AB43),
        (bytes(range(32)), 0x46DD_794E),
        (bytes(range(31, -1, -1)), 0x113F_DB5C),
    ],
)
def test_checksums_are_those_of_the_standard(data: bytes, checksum: int) -> None:
    assert crc32c(data) == by_table(data) == checksum


@pytest.mark.parametrize("length", sorted({border + more for border in BORDERS for more in (-1, 0, 1)}))
def test_long_data_have_the_checksum_of_the_table(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert crc32c(data) == by_table(data)


def test_one_changed_bit_changes_the_checksum() -> None:
    data = random.Random(1).randbytes(3_000)
    for bit in range(0, 8 * len(data), 997):
        changed = (int.from_bytes(data, "little") ^ 1 << bit).to_bytes(len(data), "little")
        assert crc32c(changed) != crc32c(data)


@pytest.mark.parametrize(("degree", "exponents"), SPARSE_MULTIPLES)
def test_the_sparse_polynomials_are_multiples_of_the_polynomial(
    degree: int, exponents: tuple[int, ...]
) -> None:
    rest = 1 << degree | sum(1 << exponent for exponent in exponents)
    while rest.bit_length() > DEGREE:
        rest ^= POLYNOMIAL << rest.bit_length() - DEGREE - 1
    assert rest == 0
    assert sorted(exponents, reverse=True) == list(exponents)
