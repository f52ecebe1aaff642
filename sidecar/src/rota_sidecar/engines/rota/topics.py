"""The topics of the embedded log, as the member's shell asks for them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.engines.port import Refused, Topics, Unreachable
from rota_sidecar.engines.rota.connection import Credentials, RpcClient, first_of, open_channel, target_of

NO_LOG = "keeps no log: start the coordinator with --log"


class RotaTopics(Topics):
    """To be made and used on a running loop."""

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
        """Nothing is kept open: topics are asked for once in a while."""

    async def _ask(
        self, request: log_pb2.DescribeTopicsRequest, client: RpcClient
    ) -> log_pb2.DescribeTopicsResponse:
        channel = open_channel(client.address, client.credentials)
        try:
            return await client.call(LogStub(channel).DescribeTopics, request)
        except (Unreachable, Refused):
            # The next look-up begins with those that may answer.
            self._addresses.remove(client.address)
            self._addresses.append(client.address)
            raise
        finally:
            await channel.close()


def _exists(topic: log_pb2.DescribeTopicsResponse.Topic) -> bool:
    """Raises Unreachable, Refused when that is not known."""
    if topic.error_code in (pb.NONE, pb.UNKNOWN_TOPIC_OR_PARTITION):
        return topic.error_code == pb.NONE
    name = pb.ErrorCode.Name(topic.error_code)
    if topic.error_code == pb.TOPIC_AUTHORIZATION_FAILED:
        raise Refused(
            f"topic {topic.name} is not for us ({name}): grant it to this client, or name another one"
        )
    raise Unreachable(f"topic {topic.name} is not described ({name}): it is asked for again later")


def _topic(topic: log_pb2.DescribeTopicsResponse.Topic) -> Topic:
    return Topic(topic.partitions, topic_id=topic.topic_id)
