"""
CRC-32C (Castagnoli), the checksum of Kafka's record batches, without a C extension. Called by `record_set.py` and `encoding.py`.

A table costs some 100 ns for each byte. Long data are therefore folded first: the data are one polynomial over GF(2), held in
one integer, and any multiple of CRC-32C's polynomial may be added without a change of the checksum. With a multiple of few
terms, x^n + x^a + x^b + 1, the coefficients from x^n on are moved down by three shifts and XORs of large integers; and as
squaring doubles the exponents of each term, x^2n + x^2a + x^2b + 1 is a multiple too, so that each step halves the data.
"""

# Reflected: the lowest bit has the highest exponent, as in the data.
POLYNOMIAL = 0x82F6_3B78
ALL_ONES = 0xFFFF_FFFF
# Multiples of the polynomial, by degree: the exponents of their other terms, highest first. Found by search, checked by a test.
SPARSE_MULTIPLES = (
    (6777, (484, 100, 0)),
    (563, (109, 58, 53, 31, 0)),
    (180, (60, 59, 46, 38, 36, 4, 0)),
)
# Below this a table is faster.
FOLDED_BITS_MIN = 640
# Integers of this size stay in the processor's cache.
CHUNK_BYTES = 64 << 10


def _entry(number: int) -> int:
    for _ in range(8):
        number = number >> 1 ^ (POLYNOMIAL if number & 1 else 0)
    return number


TABLE = tuple(map(_entry, range(256)))


def crc32c(data: bytes) -> int:
    """
    Return the checksum.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = ALL_ONES
    for start in range(0, len(data), CHUNK_BYTES):
        crc = _update(crc, data[start : start + CHUNK_BYTES])
    return crc ^ ALL_ONES


def _update(crc: int, data: bytes) -> int:
    """Return the remainder for data behind those that left the remainder `crc`."""
    bits = 8 * len(data)
    if bits < FOLDED_BITS_MIN:
        return _by_table(data, crc)
    folded = int.from_bytes(data, "little") ^ crc
    for degree, exponents in SPARSE_MULTIPLES:
        if bits > degree:
            folded, bits = _fold(folded, bits, degree, exponents)
    return _by_table(folded.to_bytes(bits // 8, "little"), 0)


def _fold(number: int, bits: int, degree: int, exponents: tuple[int, ...]) -> tuple[int, int]:
    """Return a number of about `degree` bits with the same remainder, and its bits."""
    power = 1
    while 2 * power * degree < bits:
        power *= 2
    while power:
        top = power * degree
        while bits >= top + 8:
            # As many coefficients, in whole bytes, as the other terms do not move into those being removed.
            moved = min(top - power * exponents[0], bits - top) & -8
            low = number & (1 << moved) - 1
            number >>= moved
            for exponent in exponents:
                number ^= low << top - power * exponent - moved
            bits -= moved
        power //= 2
    return number, bits


def _by_table(data: bytes, crc: int) -> int:
    table = TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc
