"""Partitions that have an owner and may not be read are named, each with its reason, and only those."""

import pytest

from rota.records import TopicPartition
from rota_cli.clusters.model import OffsetRange
from rota_cli.diagnosis.lag import PartitionLag
from rota_cli.diagnosis.stalled import describe_stalled


def says(committed: int | None, there: OffsetRange | None, owner: str | None = "a") -> list[str]:
    return list(
        describe_stalled("shop", [PartitionLag(TopicPartition("orders", 0), committed, there, owner)])
    )


@pytest.mark.parametrize(
    ("committed", "there", "reason"),
    [
        (5, OffsetRange(6, 9), "the committed offset is no longer in the log"),
        (5, OffsetRange(6, 6), "the committed offset is no longer in the log"),
        (10, OffsetRange(6, 9), "the committed offset is beyond the end of the log"),
        (None, OffsetRange(6, 9), "there are records but no committed offset"),
    ],
)
def test_a_partition_that_may_stand_still_is_named_with_the_remedy(
    committed: int | None, there: OffsetRange, reason: str
) -> None:
    (said,) = says(committed, there)
    assert said.startswith(f"orders[0]: {reason}")
    assert "`rota groups reset shop`" in said


@pytest.mark.parametrize(
    ("committed", "there", "owner"),
    [
        (6, OffsetRange(6, 9), "a"),
        (9, OffsetRange(6, 9), "a"),
        (None, OffsetRange(0, 0), "a"),
        (None, None, "a"),
        (5, None, "a"),
        (5, OffsetRange(6, 9), None),
    ],
)
def test_nothing_is_said_of_a_partition_that_is_read_or_of_which_nothing_is_known(
    committed: int | None, there: OffsetRange | None, owner: str | None
) -> None:
    assert says(committed, there, owner) == []


def test_partitions_with_the_same_reason_share_a_message() -> None:
    found = [
        PartitionLag(TopicPartition("orders", number), None, OffsetRange(0, 1), "a") for number in range(3)
    ]
    (said,) = describe_stalled("shop", found)
    assert said.startswith("orders[0-2]: ")
