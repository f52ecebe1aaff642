"""
User data of subscriptions and assignments: incarnations, arrival rates, and the owned partitions of `sticky`.

Ours has at most 256 bytes, and a member's begins as `cooperative-sticky` has it, so that Kafka's own leaders read the
generation. A leader's says what the plan was made for, so that a member that is handed its assignment again without a
round knows whether it still holds.
Bytes that others wrote never fail: what is known of them is taken.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from rota_proto.consumer_protocol import NO_GENERATION, Malformed
from rota_sidecar.core.consumer_protocol import wire
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts

USER_DATA_BYTES_MAX = 256
NO_INCARNATION = -1
UNKNOWN_RATE = -1.0

_MARK = b"rota"
_VERSION = 1
_GENERATION = struct.Struct(">i")
_OURS = struct.Struct(">4sBq")
_STAYS, _REJOINS = b"\x00", b"\x01"
_FINGERPRINT_BYTES = 8
_NO_FINGERPRINT = bytes(_FINGERPRINT_BYTES)
# Of a partition that is no longer owned: index of its topic in the subscription, partition number, rate.
_FORMER = struct.Struct(">HiB")
_POSITIONS_MAX = 2**16
# The count of entries precedes them in one byte.
RATES_MAX = USER_DATA_BYTES_MAX - _GENERATION.size - _OURS.size - 1

# A rate is one byte: unknown, zero, or a power of 2^(1/8), from one record in two minutes to 25 million per second.
_UNKNOWN, _NONE, _LOWEST = 0, 1, 2
_STEPS_IN_AN_OCTAVE = 8
_OCTAVES_BELOW_ONE = 7


@dataclass(frozen=True, slots=True)
class MemberData:
    """User data of a Rota member's subscription."""

    generation: int = NO_GENERATION
    incarnation: int = NO_INCARNATION
    # Arrival rates in records per second of the owned partitions, by topic and number; UNKNOWN_RATE: not measured yet.
    rates: Sequence[float] = ()
    # Arrival rates of released partitions, so that their next owners can be chosen by them: index of the topic in the
    # subscription, partition number, rate.
    former: Sequence[tuple[int, int, float]] = ()


def encode_member_data(data: MemberData) -> bytes:
    """Encode at most 256 bytes; rates that do not fit are left out, those of former partitions first."""
    rates = bytes(map(_byte_of, data.rates[:RATES_MAX])).rstrip(bytes((_UNKNOWN,)))
    room = (RATES_MAX - len(rates)) // _FORMER.size
    heaviest = sorted((each for each in data.former if each[0] < _POSITIONS_MAX), key=lambda each: -each[2])
    former = [_FORMER.pack(position, number, _byte_of(rate)) for position, number, rate in heaviest[:room]]
    said = bytes((len(rates),)) + rates + b"".join(former) if rates or former else b""
    return _GENERATION.pack(data.generation) + _OURS.pack(_MARK, _VERSION, data.incarnation) + said


def decode_member_data(data: bytes) -> MemberData:
    """Decode the user data of a Rota member, or of `cooperative-sticky` of another client."""
    if len(data) < _GENERATION.size:
        return MemberData()
    (generation,) = _GENERATION.unpack_from(data)
    ours = data[_GENERATION.size :]
    incarnation = _incarnation_in(ours)
    said = ours[_OURS.size :]
    if incarnation == NO_INCARNATION or not said:
        return MemberData(generation, incarnation)
    end = 1 + said[0]
    whole = (len(said) - end) // _FORMER.size * _FORMER.size
    former = _FORMER.iter_unpack(said[end : end + max(whole, 0)])
    return MemberData(
        generation,
        incarnation,
        tuple(map(_rate_of, said[1:end])),
        tuple((position, number, _rate_of(rate)) for position, number, rate in former),
    )


@dataclass(frozen=True, slots=True)
class AssignmentData:
    """
    User data of an assignment by a Rota leader; fields that other leaders do not send are empty.

    The coordinator keeps it with the assignment, so that a restart of the member cannot lose it.
    """

    incarnation: int = NO_INCARNATION
    # True: the member has to revoke partitions and rejoin. A member that restarts meanwhile owns nothing to revoke, and the
    # partitions would stay without an owner until it rejoins.
    rejoins: bool = False
    # Fingerprint of the topics to which the member subscribed when the plan was computed.
    subscribed: bytes = b""
    # In the leader's own assignment: fingerprint of the group's topics with their numbers of partitions.
    planned: bytes = b""


def encode_assignment_data(data: AssignmentData) -> bytes:
    """Encode at most 256 bytes."""
    begin = _OURS.pack(_MARK, _VERSION, data.incarnation)
    subscribed = data.subscribed or _NO_FINGERPRINT
    return begin + (_REJOINS if data.rejoins else _STAYS) + subscribed + data.planned


def decode_assignment_data(data: bytes) -> AssignmentData:
    """Decode user data; that of other clients is empty. Newer versions begin with the fields of this one."""
    incarnation = _incarnation_in(data)
    if incarnation == NO_INCARNATION:
        return AssignmentData()
    said = data[_OURS.size :]
    prints = [said[begin : begin + _FINGERPRINT_BYTES] for begin in (1, 1 + _FINGERPRINT_BYTES)]
    subscribed, planned = (
        each if len(each) == _FINGERPRINT_BYTES and each != _NO_FINGERPRINT else b"" for each in prints
    )
    return AssignmentData(incarnation, said[:1] == _REJOINS, subscribed, planned)


def _incarnation_in(data: bytes) -> int:
    if len(data) < _OURS.size:
        return NO_INCARNATION
    mark, version, incarnation = _OURS.unpack_from(data)
    return int(incarnation) if mark == _MARK and version >= _VERSION else NO_INCARNATION


def fingerprint_of_topics(topics: Iterable[str]) -> bytes:
    """Return a fingerprint of a set of topic names, independent of their order."""
    return blake2b("\n".join(sorted(topics)).encode(), digest_size=_FINGERPRINT_BYTES).digest()


def fingerprint_of_plan(partitions: Mapping[str, int]) -> bytes:
    """Return a fingerprint of topics with their partition counts; 0 is a topic that does not exist."""
    return fingerprint_of_topics(f"{topic} {count}" for topic, count in partitions.items())


def encode_sticky_data(owned: Mapping[str, Sequence[int]], generation: int) -> bytes:
    """Encode version 1 of the user data of Kafka's `sticky`; empty for a member that never had an assignment."""
    if generation == NO_GENERATION and not owned:
        return b""
    return wire.partitions(owned) + _GENERATION.pack(generation)


def decode_sticky_data(
    data: bytes, shared: SharedLayouts | None = None
) -> tuple[Mapping[str, Sequence[int]], int]:
    """Decode claims and their generation, of version 1 or 0; other bytes claim nothing."""
    reader = wire.reader_of(data, "user data", shared)
    try:
        owned = reader.partitions()
        generation = reader.int32() if reader.left else NO_GENERATION
    except Malformed:
        return {}, NO_GENERATION
    return (owned, generation) if not reader.left else ({}, NO_GENERATION)


def _byte_of(rate: float) -> int:
    if math.isnan(rate) or rate < 0:
        return _UNKNOWN
    if rate == 0:
        return _NONE
    steps = 255 - _LOWEST
    if math.isinf(rate):
        return _LOWEST + steps
    step = round((math.log2(rate) + _OCTAVES_BELOW_ONE) * _STEPS_IN_AN_OCTAVE)
    return _LOWEST + min(max(step, 0), steps)


def _rate_of(byte: int) -> float:
    if byte == _UNKNOWN:
        return UNKNOWN_RATE
    if byte == _NONE:
        return 0.0
    return float(2 ** ((byte - _LOWEST) / _STEPS_IN_AN_OCTAVE - _OCTAVES_BELOW_ONE))
