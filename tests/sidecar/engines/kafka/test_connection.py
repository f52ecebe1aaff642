"""Connections to servers that are no brokers, or brokers that cannot be used: each fails with a message, in bounded time."""

import asyncio
import base64
import socket
from collections.abc import Coroutine
from dataclasses import replace

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse

from rota_sidecar.engines.kafka import connection as module
from rota_sidecar.engines.kafka.bootstrap import Bootstrap
from rota_sidecar.engines.kafka.connection import Connection, connect
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl
from rota_sidecar.engines.kafka.versions import VERSIONS
from rota_sidecar.engines.port import Refused, Unreachable
from tests.sidecar.engines.kafka.fake_broker import Behaviour, answering, listening, saying

WITHIN_S = 60
SHORT_S = 0.2
METADATA = MetadataResponse(brokers=[], topics=[])


def run(test: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WITHIN_S):
            await test

    asyncio.run(within())


async def connected(settings: KafkaSettings, within_s: float = WITHIN_S) -> Connection:
    return await connect(settings.addresses[0], settings, within_s)


def ask_metadata() -> ApiMessage:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def failure(behave: Behaviour, **changes: object) -> Refused | Unreachable:
    """Why the connection, or the first question, fails."""
    found: list[Refused | Unreachable] = []

    async def ask() -> None:
        async with listening(behave) as settings:
            try:
                connection = await connected(replace(settings, **changes))  # type: ignore[arg-type]
                await connection.ask(ask_metadata(), WITHIN_S)
            except (Refused, Unreachable) as error:
                found.append(error)

    run(ask())
    return found[0]


def test_an_old_broker_is_refused_with_what_it_lacks() -> None:
    known = {kind.API_KEY: range(message_version.version + 1) for kind, message_version in VERSIONS.items()}
    old = failure(answering(lambda request: None, {**known, 8: range(9), 11: range(6)}))
    assert isinstance(old, Refused)
    assert (
        "is too old: it does not support JoinGroup 9, OffsetCommit 9; use Apache Kafka 3.7 or newer"
        in str(old)
    )


def test_a_listener_with_tls_is_known_by_its_alert() -> None:
    alert = failure(saying(b"\x15\x03\x03\x00\x02\x02\x50"))
    assert isinstance(alert, Refused)
    assert "requires TLS; set a CA file, or use a listener without TLS" in str(alert)


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x08\x77\x77\x77\x77abcd"],
    ids=["http", "too short", "a number that nobody asked for"],
)
def test_what_is_no_kafka_is_said_to_be_none(said: bytes) -> None:
    wrong = failure(saying(said))
    assert isinstance(wrong, Unreachable)
    assert "is not one of a Kafka broker; check the address" in str(wrong)


def test_an_answer_that_cannot_be_read_ends_the_connection() -> None:
    # The correlation id of the second request, and no more than the beginning of an answer.
    wrong = failure(answering(lambda request: b"\x00\x00\x00\x01\x00\x00"))
    assert "is not one of a Kafka broker" in str(wrong)


def test_an_end_before_the_first_answer_says_what_it_may_be() -> None:
    wrong = failure(saying(b""))
    assert isinstance(wrong, Unreachable)
    assert "closed the connection before its first response; check that its listener has no TLS" in str(wrong)


def test_no_answer_is_waited_for_after_the_deadline() -> None:
    async def ask() -> None:
        async with listening(answering(lambda request: None)) as settings:
            connection = await connected(settings)
            others = [asyncio.create_task(connection.ask(ask_metadata(), WITHIN_S)) for _ in range(2)]
            with pytest.raises(Unreachable, match=r"did not answer within 0.2 s"):
                await connection.ask(ask_metadata(), SHORT_S)
            for other in others:
                with pytest.raises(Unreachable, match=r"did not answer within 0.2 s"):
                    await other
            with pytest.raises(Unreachable, match=r"did not answer within 0.2 s"):
                await connection.ask(ask_metadata(), WITHIN_S)

    run(ask())


def test_a_server_that_never_says_anything_is_given_up() -> None:
    async def sleep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def ask() -> None:
        async with listening(sleep) as settings:
            with pytest.raises(Unreachable, match=r"did not answer within 0.2 s; check that it is running"):
                await connected(settings, SHORT_S)

    run(ask())


def test_answers_find_who_asked_and_one_who_left_disturbs_nobody() -> None:
    async def ask() -> None:
        def in_turn(request: ApiMessage) -> ApiMessage:
            (group,) = request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[(group, 1, "host", 9092, 0, None)])

        async with listening(answering(in_turn)) as settings:
            connection = await connected(settings)
            groups = [f"group-{number}" for number in range(20)]
            requests = [FindCoordinatorRequest(key_type=0, coordinator_keys=[group]) for group in groups]
            tasks = [asyncio.create_task(connection.ask(each, WITHIN_S)) for each in requests]
            await asyncio.sleep(0)
            tasks[3].cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(answers.pop(3), asyncio.CancelledError)
            found = [each.coordinators[0].key for each in answers if not isinstance(each, BaseException)]
            assert found == [group for group in groups if group != "group-3"]
            await connection.close()

    run(ask())


def test_only_so_many_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_FLIGHT_MAX", 2)

    async def ask() -> None:
        async with listening(answering(lambda request: None)) as settings:
            connection = await connected(settings)
            waiting = [asyncio.create_task(connection.ask(ask_metadata(), WITHIN_S)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Unreachable, match=r"2 requests to .* are in flight already"):
                await connection.ask(ask_metadata(), WITHIN_S)
            await connection.close()
            for each in waiting:
                with pytest.raises(Unreachable, match="was closed by this client"):
                    await each

    run(ask())


def test_a_message_above_the_size_limit_is_neither_sent_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        async with listening(answering(lambda request: bytes(1000))) as settings:
            connection = await connected(settings)
            monkeypatch.setattr(module, "MESSAGE_BYTES_MAX", 500)
            many = MetadataRequest(topics=[(None, "t" * 200)] * 3, allow_auto_topic_creation=False)
            with pytest.raises(Refused, match=r"a request of \d+ bytes exceeds Kafka's limit"):
                await connection.ask(many, WITHIN_S)
            with pytest.raises(Unreachable, match="is not one of a Kafka broker"):
                await connection.ask(ask_metadata(), WITHIN_S)

    run(ask())


def test_a_server_that_cannot_sign_with_the_password_is_not_believed() -> None:
    def impostor(request: ApiMessage) -> ApiMessage:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["SCRAM-SHA-256"])
        said = bytes(request.auth_bytes).decode()
        if said.startswith("n,,"):
            nonce = said.rpartition("r=")[2]
            reply = f"r={nonce}theirs,s={base64.b64encode(b'salt').decode()},i=4096"
        else:
            reply = "v=" + base64.b64encode(bytes(32)).decode()
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=reply.encode())

    wrong = failure(answering(impostor), sasl=Sasl("SCRAM-SHA-256", "orders", "secret"))
    assert isinstance(wrong, Refused)
    assert "has not proved with SCRAM-SHA-256 that it knows the password" in str(wrong)
    assert "secret" not in str(wrong)


def test_a_mechanism_that_the_broker_lacks_is_refused_with_those_that_it_has() -> None:
    def handshake(request: ApiMessage) -> ApiMessage:
        return SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "PLAIN"])

    wrong = failure(answering(handshake), sasl=Sasl("SCRAM-SHA-256", "orders", "secret"))
    assert isinstance(wrong, Refused)
    assert str(wrong).endswith("does not support the SASL mechanism SCRAM-SHA-256; it supports GSSAPI, PLAIN")


def test_nothing_is_sent_with_a_mechanism_that_is_not_supported() -> None:
    async def ask() -> None:
        settings = KafkaSettings(("192.0.2.1:9092",), sasl=Sasl("DIGEST-MD5", "orders", "secret"))
        with pytest.raises(
            Refused, match=r"DIGEST-MD5 is not supported; use one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
        ):
            await connected(settings, SHORT_S)

    run(ask())


def test_no_password_goes_over_the_network_in_plain_text_unless_that_is_allowed() -> None:
    async def ask() -> None:
        settings = KafkaSettings(("192.0.2.1:9092",), sasl=Sasl("PLAIN", "orders", "secret"))
        with pytest.raises(Refused, match=r"would be sent to 192\.0\.2\.1:9092 in plain text"):
            await connected(settings, SHORT_S)
        with pytest.raises(Unreachable):
            await connected(replace(settings, allow_plain_text_password=True), SHORT_S)

    run(ask())


def test_a_silent_broker_leaves_time_for_the_next_one_who_is_then_asked_first() -> None:
    asked: list[str] = []

    async def ask() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append("silent")
            await reader.read()

        def lively(request: ApiMessage) -> ApiMessage:
            asked.append("lively")
            return METADATA

        async with listening(silent) as first, listening(answering(lively)) as second:
            bootstrap = Bootstrap(KafkaSettings((*first.bootstrap, *second.bootstrap)))
            for _ in range(2):
                _, connection = await bootstrap.ask(ask_metadata(), 2)
                await connection.close()

    run(ask())
    assert asked == ["silent", "lively", "lively"]


def test_a_refusal_says_more_than_silence() -> None:
    async def ask() -> None:
        async with listening(saying(b"\x15\x03\x03\x00\x02\x02\x50")) as tls, listening(saying(b"")) as gone:
            with pytest.raises(Refused, match="requires TLS"):
                await Bootstrap(KafkaSettings((*gone.bootstrap, *tls.bootstrap))).ask(
                    ask_metadata(), WITHIN_S
                )
            with pytest.raises(Unreachable, match="none of 2 Kafka brokers answers; the first one: Kafka at"):
                await Bootstrap(KafkaSettings((*gone.bootstrap, "127.0.0.1:1"))).ask(ask_metadata(), WITHIN_S)

    run(ask())


def test_a_login_that_the_broker_cannot_judge_may_be_tried_again() -> None:
    def confused(request: ApiMessage) -> ApiMessage:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        return SaslAuthenticateResponse(error_code=-1, error_message="out of order", auth_bytes=b"")

    wrong = failure(answering(confused), sasl=Sasl("PLAIN", "orders", "secret"))
    assert isinstance(wrong, Unreachable)
    assert "cannot verify the login now (error -1)" in str(wrong)


def test_a_machine_that_is_gone_is_noticed_while_nothing_is_said() -> None:
    async def ask() -> None:
        async with listening(answering(lambda request: None)) as settings:
            connection = await connected(settings)
            plain = connection._writer.get_extra_info("socket")
            assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle, between, times = (
                plain.getsockopt(socket.IPPROTO_TCP, name)
                for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + between * times <= 30
            await connection.close()

    run(ask())
