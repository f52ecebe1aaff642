"""The member that is driven by hand does what a consumer would."""

import asyncio
from pathlib import Path

import pytest

from tests.support.coordinator import serving
from tests.support.member import in_turn, member, packed, unpacked

pytestmark = pytest.mark.process

PARTITIONS = [("orders", 0), ("orders", 1), ("returns", 0)]


def test_an_assignment_is_read_as_it_was_written() -> None:
    for partitions in ([], PARTITIONS[:1], PARTITIONS):
        assert unpacked(packed(2**40, partitions)) == (2**40, tuple(partitions))
    assert unpacked(b"") == (-1, ())


def test_members_share_partitions_and_know_their_generation(tmp_path: Path) -> None:
    async def body(address: str) -> None:
        async with (
            member(address, "g", in_turn(PARTITIONS)) as first,
            member(address, "g", in_turn(PARTITIONS)) as second,
        ):
            assert set(await first.join()) == set(PARTITIONS)
            joining = asyncio.create_task(second.join())
            await asyncio.wait_for(first.rebalancing.wait(), 20)
            shared = [*await first.join(), *await joining]
            assert sorted(shared) == PARTITIONS
            assert first.metadata.incarnation == second.metadata.incarnation >= 1
            assert first.metadata.generation_id == second.metadata.generation_id == 2

    with serving(tmp_path) as coordinator:
        asyncio.run(body(coordinator.address))
