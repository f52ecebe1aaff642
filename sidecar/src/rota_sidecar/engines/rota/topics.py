"""Topics of the embedded log. Created by `wiring.py`."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.engines.port import Refused, Topics, Unreachable
from rota_sidecar.engines.rota.connection import Credentials, RpcClient, first_of, open_channel, target_of

NO_LOG = "has no embedded log; start the coordinator with --log"


class RotaTopics(Topics):
    """Must be created and used on a running loop. Invariant: addresses that failed last are asked last."""

    def __init__(self, addresses: Sequence[str], credentials: Credentials) -> None:
        self._addresses = [target_of(address) for address in addresses]
        self._credentials = credentials

    @override
    async def describe(self, names: Collection[str] | None, within_s: float) -> Mapping[str, Topic]:
        if names is not None and not names:
            return {}
        request = log_pb2.DescribeTopicsRequest(names=sorted(names or ()))

        async def ask(address: str, share_s: float) -> log_pb2.DescribeTopicsResponse:
            return await self._ask(request, RpcClient(address, self._credentials, share_s, NO_LOG))

        clock = asyncio.get_running_loop().time
        described = await first_of(list(self._addresses), ask, within_s, clock)
        return {topic.name: _topic(topic) for topic in described.topics if _exists(topic)}

    @override
    async def close(self) -> None:
        """Do nothing: each call has a connection of its own, as calls are rare."""

    async def _ask(
        self, request: log_pb2.DescribeTopicsRequest, client: RpcClient
    ) -> log_pb2.DescribeTopicsResponse:
        channel = open_channel(client.address, client.credentials)
        try:
            return await client.call(LogStub(channel).DescribeTopics, request)
        except (Unreachable, Refused):
            # The next call begins with the other addresses.
            self._addresses.remove(client.address)
            self._addresses.append(client.address)
            raise
        finally:
            await channel.close()


def _exists(topic: log_pb2.DescribeTopicsResponse.Topic) -> bool:
    """Return true if the topic exists. Raises Unreachable, Refused for other errors."""
    if topic.error_code in (pb.NONE, pb.UNKNOWN_TOPIC_OR_PARTITION):
        return topic.error_code == pb.NONE
    name = pb.ErrorCode.Name(topic.error_code)
    if topic.error_code == pb.TOPIC_AUTHORIZATION_FAILED:
        raise Refused(
            f"not authorized to describe topic {topic.name} ({name}); grant it to this client, or name another topic"
        )
    raise Unreachable(f"topic {topic.name} cannot be described ({name}); retrying later")


def _topic(topic: log_pb2.DescribeTopicsResponse.Topic) -> Topic:
    return Topic(topic.partitions, topic_id=topic.topic_id)
