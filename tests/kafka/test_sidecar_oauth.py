"""The sidecar's own connections to brokers with bearer tokens, and with sessions that end: no member is dropped."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.oauth_sources import TokenEndpoint
from rota_sidecar.engines.kafka.scram import PASSWORD_MECHANISMS
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl
from rota_sidecar.engines.port import Refused, Unreachable
from tests.kafka.oauth_logins import ALLOWED, bearer, broker, security, settings, token_file
from tests.kafka.sidecar_group import WITHIN_S, HandMember, member, run
from tests.support.certificates import Authority
from tests.support.kafka import Kafka
from tests.support.kafka.oauth import CLIENT_ID, CLIENT_SECRET, Answer, endpoint, unsecured

pytestmark = [pytest.mark.kafka, pytest.mark.paired]

TOPIC = f"{ALLOWED}topic"
# A quarter of it, from the re-authentication to the end, is more than a busy machine stands still.
SESSION_S = 5.0
# So that a connection that is not re-authenticated is closed for sure.
SESSIONS_S = 1.6 * SESSION_S
# One of both brokers, for tests that take long.
ONE_BROKER = pytest.mark.parametrize("kafka", ["oauth-tls"], indirect=True)


@pytest.fixture(scope="module", params=["oauth", "oauth-tls"])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    with broker(request.param, SESSION_S) as kafka:
        for topic in (TOPIC, "forbidden"):
            kafka.create_topic(topic, partitions=3)
        yield kafka


def refusal(wrong: KafkaSettings, group: str = f"{ALLOWED}group") -> Refused | Unreachable:
    found: list[Refused | Unreachable] = []

    async def find() -> None:
        async with member(wrong, group) as one:
            try:
                await one.coordination.find(WITHIN_S)
            except (Refused, Unreachable) as failure:
                found.append(failure)

    run(find())
    return found[0]


async def stay(one: HandMember, for_s: float) -> None:
    """Join, and send heartbeats and commits for a while, all on the connections of the join."""
    await one.serve()
    assert (await one.join()).error_code == pb.NONE
    assert (await one.sync(**{one.member_id: b""})).error_code == pb.NONE
    ends_s = time.monotonic() + for_s  # noqa: TID251  sessions end by the broker's clock
    while time.monotonic() < ends_s:  # noqa: TID251  see above
        assert await one.heartbeat() == pb.NONE
        assert await one.commit(7, one.generation, 0) == pb.NONE
        await asyncio.sleep(0.1)
    assert one.received.empty(), "the connection was lost"
    assert await one.leave() == pb.NONE


def test_members_outlive_their_sessions_on_their_connections_with_every_mechanism(
    kafka: Kafka, tmp_path: Path
) -> None:
    known = security(kafka)
    logins = [Sasl(mechanism, known.user, known.password) for mechanism in PASSWORD_MECHANISMS]
    logins.append(bearer(token_file(tmp_path, unsecured())))

    async def live(login: Sasl) -> None:
        async with member(settings(kafka, login), f"{ALLOWED}{login.mechanism}", TOPIC) as one:
            await stay(one, SESSIONS_S)

    async def all_live() -> None:
        async with asyncio.TaskGroup() as members:
            for login in logins:
                members.create_task(live(login))

    run(all_live())


@ONE_BROKER
def test_a_connection_without_reauthentication_is_closed(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter-proof: sessions do end."""

    async def never(*_: object) -> None:
        pass

    monkeypatch.setattr("rota_sidecar.engines.kafka.connection.keep_authenticated", never)
    known = security(kafka)

    async def live() -> None:
        async with member(
            settings(kafka, Sasl("PLAIN", known.user, known.password)), f"{ALLOWED}never", TOPIC
        ) as one:
            with pytest.raises(Unreachable, match="was lost"):
                await stay(one, SESSIONS_S)

    run(live())


@ONE_BROKER
def test_tokens_of_an_endpoint_are_renewed_before_they_expire(kafka: Kafka, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "idp")
    with endpoint(lambda: Answer.token(lifetime_s=12), authority.issue("idp")) as idp:
        source = TokenEndpoint(
            idp.url, CLIENT_ID, CLIENT_SECRET, scope="kafka", ca_file=authority.certificate
        )

        async def live() -> None:
            async with member(settings(kafka, bearer(source)), f"{ALLOWED}endpoint", TOPIC) as one:
                await stay(one, 14)

        run(live())
        assert 2 <= len(idp.requests) <= 3
        assert idp.requests[0].form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


@ONE_BROKER
def test_a_token_file_is_followed_as_it_changes(kafka: Kafka, tmp_path: Path) -> None:
    source = token_file(tmp_path, unsecured(lifetime_s=12))

    async def rotate() -> None:
        for _ in range(3):
            await asyncio.sleep(2.5)
            source.path.write_text("")
            await asyncio.sleep(0.5)
            source.path.write_text(unsecured(lifetime_s=12))

    async def live() -> None:
        async with member(settings(kafka, bearer(source)), f"{ALLOWED}file", TOPIC) as one:
            rotating = asyncio.create_task(rotate())
            await stay(one, 10)
            await rotating

    run(live())


def test_a_token_that_the_broker_rejects_is_a_refusal_without_the_token(kafka: Kafka, tmp_path: Path) -> None:
    # Of the wrong kind for the unsecured validator: it has a signature.
    token = unsecured() + "c2lnbmF0dXJl"
    failure = refusal(settings(kafka, bearer(token_file(tmp_path, token))))
    assert isinstance(failure, Refused)
    assert str(failure).startswith(
        f"Kafka at {kafka.bootstrap} rejects the token of 'rota' with OAUTHBEARER; "
    )
    assert token not in str(failure)


def test_a_missing_right_differs_from_a_failed_login(kafka: Kafka, tmp_path: Path) -> None:
    ours = settings(kafka, bearer(token_file(tmp_path, unsecured("stranger"))))

    async def find() -> None:
        async with member(ours, f"{ALLOWED}group") as one:
            assert await one.coordination.find(WITHIN_S) == pb.GROUP_AUTHORIZATION_FAILED

    run(find())


def test_an_expired_token_is_said_and_replaced_once_it_is(kafka: Kafka, tmp_path: Path) -> None:
    source = token_file(tmp_path, unsecured(lifetime_s=-60))
    ours = settings(kafka, bearer(source))

    async def find() -> None:
        async with member(ours, f"{ALLOWED}group") as one:
            with pytest.raises(
                Unreachable, match=r"has a token that expired 6\d s ago; renew it, and check the clock"
            ):
                await one.coordination.find(WITHIN_S)
            source.path.write_text(unsecured())
            await one.serve()

    run(find())


def test_an_endpoint_that_rejects_the_client_is_a_refusal(kafka: Kafka) -> None:
    with endpoint() as idp:
        source = TokenEndpoint(idp.url, CLIENT_ID, "wrong-secret-nobody-sees")
        failure = refusal(settings(kafka, bearer(source)))
    assert isinstance(failure, Refused)
    assert f"the token endpoint {idp.url} rejects the client (401, invalid_client); check the" in str(failure)
    assert "nobody-sees" not in str(failure)


def test_the_user_of_a_connection_stays_the_same(kafka: Kafka, tmp_path: Path) -> None:
    """A broker closes a connection that re-authenticates as another user; the next one is the new user's."""
    source = token_file(tmp_path, unsecured())

    async def live() -> None:
        async with member(settings(kafka, bearer(source)), f"{ALLOWED}user", TOPIC) as one:
            await one.serve()
            source.path.write_text(unsecured("stranger"))
            lost = await asyncio.wait_for(one.received.get(), WITHIN_S)
            # The broker closes it behind its answer; which of the two is seen first is chance.
            assert "rejects the token of 'stranger'" in str(lost) or "during a re-authentication" in str(lost)
            assert await one.coordination.find(WITHIN_S) == pb.GROUP_AUTHORIZATION_FAILED

    run(live())


def test_no_token_is_sent_in_plain_text_to_another_machine(tmp_path: Path) -> None:
    ours = KafkaSettings(("192.0.2.1:9092",), sasl=bearer(token_file(tmp_path, unsecured())))
    assert "the token would be sent to 192.0.2.1:9092 in plain text" in str(refusal(ours))
    allowed = replace(ours, allow_plain_text_password=True)
    assert allowed.sasl is ours.sasl
