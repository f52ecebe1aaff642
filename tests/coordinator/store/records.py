"""Records that can be told from each other, for tests of the stores."""

from collections.abc import Iterable

from rota_proto.coordinator.v1.records_pb2 import GenerationReserved, Record


def record(number: int, group_id: str = "g") -> Record:
    """One that says its number."""
    return Record(generation_reserved=GenerationReserved(group_id=group_id, generation_id=number))


def numbers(records: Iterable[Record]) -> list[int]:
    """Return the numbers in the records."""
    return [each.generation_reserved.generation_id for each in records]
