"""Deletion of committed offsets on Kafka, against a broker in this process that answers with the codes of a test."""

import gc
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import OffsetDeleteRequest, OffsetDeleteResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from typing_extensions import override

from rota import errors
from rota.records import TopicPartition
from rota_cli.clusters.connection import Connection, SaslLogin
from rota_cli.clusters.kafka.offset_deletion import _settings, delete_offsets
from rota_cli.errors import Failure, NotFound, NotReachable

# The newest versions whose headers have no tagged fields.
VERSIONS = {ApiVersionsRequest: 2, MetadataRequest: 7, FindCoordinatorRequest: 2, OffsetDeleteRequest: 0}
HEAD = struct.Struct(">hhi")
O0, R0 = TopicPartition("orders", 0), TopicPartition("returns", 0)


class Broker(socketserver.ThreadingTCPServer):
    """The only broker of its cluster. `code` is the group's error, `codes` are those of topics; None is no answer."""

    daemon_threads = True

    def __init__(self, code: int | None, codes: dict[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.code = code
        self.codes = codes

    def answer(self, kind: type[ApiMessage], request: ApiMessage) -> ApiMessage | None:
        """Return the response to a request; None for no answer."""
        host, port = self.server_address[:2]
        if kind is ApiVersionsRequest:
            keys = [(each.API_KEY, 0, newest) for each, newest in VERSIONS.items()]
            return ApiVersionsResponse(error_code=0, api_keys=keys)
        if kind is MetadataRequest:
            return MetadataResponse(
                brokers=[(0, host, port, None)], cluster_id="c", controller_id=0, topics=[]
            )
        if kind is FindCoordinatorRequest:
            return FindCoordinatorResponse(error_code=0, error_message="", node_id=0, host=host, port=port)
        if self.code is None:
            return None
        assert request.group_id == "shop"
        topics = [
            (topic.name, [(each.partition_index, self.codes.get(topic.name, 0)) for each in topic.partitions])
            for topic in request.topics
        ]
        return OffsetDeleteResponse(error_code=self.code, topics=topics)


class Answering(socketserver.StreamRequestHandler):
    """One connection to the broker."""

    server: Broker

    @override
    def handle(self) -> None:
        """Answer requests until the client closes the connection."""
        kinds = {kind.API_KEY: kind for kind in VERSIONS}
        while len(length := self.rfile.read(4)) == 4:
            frame = self.rfile.read(*struct.unpack(">i", length))
            key, version, number = HEAD.unpack_from(frame)
            request = kinds[key].decode(frame, version=version, header=True)
            answer = self.server.answer(kinds[key], request)
            if answer is not None:
                body = struct.pack(">i", number) + answer.encode(version=version)
                self.wfile.write(struct.pack(">i", len(body)) + body)


@contextmanager
def broker(code: int | None = 0, **codes: int) -> Iterator[Connection]:
    """Run a broker; yields the connection to it."""
    with Broker(code, codes) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield Connection(f"127.0.0.1:{running.server_address[1]}", "the test", timeout_s=1.0)
        finally:
            running.shutdown()
            thread.join()


def test_topics_that_members_subscribe_to_are_returned() -> None:
    with broker() as connection:
        assert delete_offsets(connection, "shop", [O0, R0]) == frozenset()
    with broker(returns=86) as connection:
        assert delete_offsets(connection, "shop", [O0, R0]) == {"returns"}


def test_errors_of_the_group_and_of_partitions_are_the_commands_own() -> None:
    with broker(69) as connection, pytest.raises(NotFound, match=r"^group shop not found at 127"):
        delete_offsets(connection, "shop", [O0])
    with broker(68) as connection, pytest.raises(Failure, match=r"^group shop has members: stop"):
        delete_offsets(connection, "shop", [O0])
    with (
        broker(orders=3) as connection,
        pytest.raises(errors.UnknownTopicOrPartition, match=r"orders\[0\] of group shop"),
    ):
        delete_offsets(connection, "shop", [O0])


# After an error kafka-python opens a connection for metadata; closed meanwhile, it leaves the socket to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)
def test_a_broker_that_does_not_answer_is_given_up_after_the_timeout() -> None:
    with broker(None) as connection, pytest.raises(NotReachable, match="did not answer within 1 s"):
        delete_offsets(connection, "shop", [O0])
    # The warning belongs to this test, not to one that runs later.
    gc.collect()


def test_tls_and_login_are_passed_on() -> None:
    connection = Connection(
        "a:1,b:2",
        "the test",
        tls=True,
        ca_file=Path("ca"),
        certificate_file=Path("cert"),
        key_file=Path("key"),
        login=SaslLogin("SCRAM-SHA-512", "alice", "secret"),
    )
    settings = _settings(connection)
    assert settings.pop("request_timeout_ms") == settings.pop("bootstrap_timeout_ms") == 10_000
    assert settings == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "rota-cli",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "ca",
        "ssl_certfile": "cert",
        "ssl_keyfile": "key",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
