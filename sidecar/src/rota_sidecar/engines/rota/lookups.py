"""ListOffsets of the embedded log: log start, log end, timestamps. Used by `reading.py`."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import OffsetAndTimestamp
from rota_sidecar.engines.rota.connection import Credentials, RpcClient, first_of, open_channel
from rota_sidecar.engines.rota.topics import NO_LOG

END, START = -1, -2
# Limit of a request, whose size depends on the topics' names.
PARTITIONS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup at the first address that answers. Each of its requests has a timeout of `within_s` seconds."""

    addresses: Sequence[str]
    credentials: Credentials
    within_s: float
    _: KW_ONLY
    read_committed: bool

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        """Return the bounds of the partitions that exist. Raises Unreachable, Refused."""
        # Starts first: a start that moves meanwhile stays below the end.
        starts = await self.at_times(dict.fromkeys(partitions, START))
        ends = await self.at_times(dict.fromkeys(partitions, END))
        return {
            each: Bounds(starts[each].offset, ends[each].offset)
            for each in partitions
            if each in starts and each in ends
        }

    async def at_times(self, times: Mapping[Partition, int]) -> Mapping[Partition, OffsetAndTimestamp]:
        """Return the first record at or after each timestamp in milliseconds, START or END. Raises Unreachable, Refused."""
        found: dict[Partition, OffsetAndTimestamp] = {}
        everything = list(times.items())
        for start in range(0, len(everything), PARTITIONS_MAX):
            answer = await self._ask(everything[start : start + PARTITIONS_MAX])
            for part in answer.partitions:
                if _is_there(part):
                    found[Partition(part.topic, part.index)] = OffsetAndTimestamp(
                        part.offset, part.timestamp_ms
                    )
        return found

    async def _ask(self, times: Sequence[tuple[Partition, int]]) -> log_pb2.ListOffsetsResponse:
        request = log_pb2.ListOffsetsRequest(
            partitions=[
                log_pb2.ListOffsetsRequest.Partition(topic=each.topic, index=each.number, timestamp_ms=time)
                for each, time in times
            ],
            isolation_level=(
                log_pb2.ISOLATION_LEVEL_READ_COMMITTED
                if self.read_committed
                else log_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
            ),
        )

        async def ask(address: str, share_s: float) -> log_pb2.ListOffsetsResponse:
            channel = open_channel(address, self.credentials)
            try:
                client = RpcClient(address, self.credentials, share_s, NO_LOG)
                return await client.call(LogStub(channel).ListOffsets, request)
            finally:
                await channel.close()

        clock = asyncio.get_running_loop().time
        return await first_of(self.addresses, ask, self.within_s, clock)


def _is_there(part: log_pb2.ListOffsetsResponse.Partition) -> bool:
    """Return true if the response has an offset. Raises Unreachable, Refused for errors other than a missing partition."""
    if part.error_code in (pb.NONE, pb.UNKNOWN_TOPIC_OR_PARTITION):
        return part.error_code == pb.NONE and part.offset >= 0
    name = pb.ErrorCode.Name(part.error_code)
    if part.error_code == pb.TOPIC_AUTHORIZATION_FAILED:
        raise Refused(f"not authorized to read topic {part.topic} ({name}); allow this client to consume it")
    raise Unreachable(f"no offsets of {part.topic}-{part.index} now ({name}); retrying later")
