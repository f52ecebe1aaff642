"""Topics of a Kafka cluster, described by any broker. Created by `wiring.py`."""

from collections.abc import Collection, Mapping

from kafka.protocol.metadata import MetadataRequest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.engines.kafka.bootstrap import Bootstrap
from rota_sidecar.engines.kafka.connection import Connection
from rota_sidecar.engines.kafka.metadata import Metadata
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.port import Refused

# Errors of topics that do not exist; a name that Kafka does not allow is one of them.
NO_TOPIC = (pb.UNKNOWN_TOPIC_OR_PARTITION, pb.INVALID_TOPIC_EXCEPTION)


class KafkaTopics:
    """Implements `Topics` of the port. Invariant: a request never creates a topic."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._bootstrap = Bootstrap(settings)
        self._connection: Connection | None = None

    async def describe(self, names: Collection[str] | None, within_s: float) -> Mapping[str, Topic]:
        """Describe the topics that exist; names None: all visible ones except internal ones. Raises Unreachable, Refused."""
        asked = None if names is None else [(None, name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = await self._ask(request, within_s)
        forbidden = [each.name for each in answer.topics if each.error_code == pb.TOPIC_AUTHORIZATION_FAILED]
        if forbidden:
            raise Refused(
                f"Kafka does not authorize this user to describe topic {forbidden[0]!r}; allow it to describe and read the topic"
            )
        return {
            each.name: each.topic
            for each in answer.topics
            if each.error_code not in NO_TOPIC and (names is not None or not each.is_internal)
        }

    async def cluster_id(self, within_s: float) -> str:
        """Return the id of the cluster; empty: it has none. Raises Unreachable, Refused."""
        answer = await self._ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), within_s)
        return answer.cluster_id

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _ask(self, request: MetadataRequest, within_s: float) -> Metadata:
        """Ask on the last connection if it is still open, else on a new one."""
        if self._connection is not None and self._connection.failure is None:
            answer = await self._connection.ask(request, within_s)
        else:
            answer, self._connection = await self._bootstrap.ask(request, within_s)
        assert isinstance(answer, Metadata)
        return answer
