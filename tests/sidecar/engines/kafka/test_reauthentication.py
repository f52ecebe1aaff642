"""Re-authentication on a fake broker, which checks the order of requests as a real one does, and answers as a test says."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from rota_service.oauth_tokens import NoToken, Token
from rota_sidecar.engines.kafka import reauthentication as module
from rota_sidecar.engines.kafka.connection import Connection, connect
from rota_sidecar.engines.kafka.reauthentication import timing_of
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl
from rota_sidecar.engines.port import Refused, Unreachable
from tests.sidecar.engines.kafka.fake_broker import answering, listening

WITHIN_S = 60
SESSION_S = 0.2
REJECTED = 58


def run(test: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WITHIN_S):
            await test

    asyncio.run(within())


@dataclass
class Broker:
    """Counts logins; a request between handshake and authentication is an error, as on a real broker."""

    lifetime_ms: Callable[[int], int] = lambda _: round(SESSION_S * 1000)
    error: Callable[[int], int] = lambda _: 0
    logins: int = 0
    tokens: list[str] = field(default_factory=list)
    expects_authentication: bool = False
    faults: list[str] = field(default_factory=list)

    def __call__(self, request: ApiMessage) -> ApiMessage:
        if self.expects_authentication is not isinstance(request, SaslAuthenticateRequest):
            self.faults.append(type(request).__name__)
        self.expects_authentication = isinstance(request, SaslHandshakeRequest)
        match request:
            case SaslHandshakeRequest():
                return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
            case SaslAuthenticateRequest():
                self.logins += 1
                self.tokens.append(bytes(request.auth_bytes).decode())
                return SaslAuthenticateResponse(
                    error_code=self.error(self.logins),
                    error_message=None,
                    auth_bytes=b"",
                    session_lifetime_ms=self.lifetime_ms(self.logins),
                )
            case _:
                return MetadataResponse(brokers=[], topics=[])


def answering_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Tokens:
    """Stands for a provider: `fails` is raised by renewals."""

    fails: NoToken | None = None
    lifetime_s: float = 100
    answers: threading.Event = field(default_factory=answering_event)
    asked: int = 0

    def token(self) -> Token:
        return Token("first", "orders", 100)

    def renewed(self) -> Token:
        self.asked += 1
        self.answers.wait(WITHIN_S)
        if self.fails is not None:
            raise self.fails
        return Token(f"renewed-{self.asked}", "orders", self.lifetime_s)

    def accept(self) -> None:
        pass

    def reject(self, value: str) -> bool:
        return True


PLAIN = Sasl("PLAIN", "orders", "secret")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_MIN_S", 0.0)
    monkeypatch.setattr(module, "RETRY_S", 0.01)


async def connected(settings: KafkaSettings, sasl: Sasl = PLAIN) -> Connection:
    logged_in = replace(settings, sasl=sasl)
    return await connect(settings.addresses[0], logged_in, WITHIN_S)


def ask_metadata() -> ApiMessage:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_it_begins_at_80_percent_of_the_session_and_requests_wait_from_85_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    assert timing_of(1000) == (800, 850)
    # Brokers refuse a second one within a second.
    assert timing_of(0.5) == (1.1, 1.1)


def test_requests_go_on_over_many_sessions_and_none_is_between_the_steps_of_a_login() -> None:
    broker = Broker()

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings)
            while broker.logins < 4:
                await asyncio.gather(*(connection.ask(ask_metadata(), WITHIN_S) for _ in range(10)))
                await asyncio.sleep(0)
            assert connection.failure is None
            await connection.close()

    run(live())
    assert broker.faults == []


def test_an_idle_connection_is_reauthenticated_too() -> None:
    broker = Broker()

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings)
            await until(lambda: broker.logins >= 3)
            await connection.close()

    run(live())


def test_a_broker_without_a_session_lifetime_is_logged_in_to_once() -> None:
    broker = Broker(lifetime_ms=lambda _: 0)

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings)
            await asyncio.sleep(2 * SESSION_S)
            await connection.ask(ask_metadata(), WITHIN_S)
            await connection.close()

    run(live())
    assert broker.logins == 1


def test_no_login_is_sent_behind_a_request_without_an_answer() -> None:
    """Brokers read nothing behind a JoinGroup that waits for other members: the login follows its answer."""
    broker = Broker()
    held: list[ApiMessage] = []

    def slow(request: ApiMessage) -> ApiMessage | None:
        if isinstance(request, MetadataRequest) and not held:
            held.append(request)
            return None
        return broker(request)

    async def live() -> None:
        async with listening(answering(slow)) as settings:
            connection = await connected(settings)
            waiting = asyncio.create_task(connection.ask(ask_metadata(), 3 * SESSION_S))
            with pytest.raises(Unreachable, match="did not answer within"):
                await waiting
            assert broker.logins == 1
            assert connection.failure is not None

    run(live())


def test_a_rejected_reauthentication_ends_the_connection_with_its_reason() -> None:
    broker = Broker(error=lambda login: REJECTED if login == 2 else 0)

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings)
            failure = await connection.ended
            assert isinstance(failure, Refused)
            assert "rejects the login of user 'orders' with PLAIN" in str(failure)
            with pytest.raises(Refused, match="rejects the login of user 'orders'"):
                await connection.ask(ask_metadata(), WITHIN_S)

    run(live())


def test_each_session_begins_with_the_newest_token() -> None:
    broker, tokens = Broker(), Tokens()

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings, Sasl("OAUTHBEARER", tokens=tokens))  # type: ignore[arg-type]
            await until(lambda: broker.logins >= 3)
            await connection.close()

    run(live())
    assert broker.tokens[:3] == [
        f"n,,\1auth=Bearer {token}\1\1" for token in ("first", "renewed-1", "renewed-2")
    ]


def test_requests_wait_for_a_token_that_is_late_and_the_connection_stays() -> None:
    """A token endpoint may take longer than the rest of the session."""
    broker, late = Broker(), threading.Event()
    tokens = Tokens(answers=late)

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings, Sasl("OAUTHBEARER", tokens=tokens))  # type: ignore[arg-type]
            await until(lambda: tokens.asked == 1)
            await asyncio.sleep(SESSION_S)
            waiting = asyncio.create_task(connection.ask(ask_metadata(), WITHIN_S))
            await asyncio.sleep(SESSION_S)
            assert (waiting.done(), broker.logins) == (False, 1)
            late.set()
            await waiting
            assert (broker.logins, connection.failure) == (2, None)
            await connection.close()

    run(live())
    assert broker.faults == []


def test_a_token_that_ends_with_the_session_is_not_sent_again() -> None:
    """A login with it would win nothing: the newest one is waited for, and the reason said if there is none."""
    broker, tokens = Broker(), Tokens(lifetime_s=SESSION_S)

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings, Sasl("OAUTHBEARER", tokens=tokens))  # type: ignore[arg-type]
            failure = await connection.ended
            assert "has no token that is valid for longer than the session; check that it renews" in str(
                failure
            )

    run(live())
    assert broker.logins == 1


def test_missing_credentials_are_looked_for_until_the_end_of_the_session() -> None:
    broker = Broker(lifetime_ms=lambda _: 1000)
    tokens = Tokens(fails=NoToken("the token file /token is empty; write the token to it", may_heal=True))

    async def live() -> None:
        async with listening(answering(broker)) as settings:
            connection = await connected(settings, Sasl("OAUTHBEARER", tokens=tokens))  # type: ignore[arg-type]
            failure = await connection.ended
            assert isinstance(failure, Unreachable)
            assert str(failure) == (
                "there is no token for the login to Kafka: the token file /token is empty; write the token to it"
            )

    run(live())
    assert tokens.asked >= 2
    assert broker.logins == 1


def test_a_connection_that_is_closed_meanwhile_leaves_no_task() -> None:
    async def live() -> None:
        async with listening(answering(Broker())) as settings:
            connection = await connected(settings)
            await connection.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert [each for each in others if "keep_authenticated" in repr(each)] == []

    run(live())
