"""Signed tokens at a broker that has the issuer's key: a workload identity logs in, other audiences and issuers do not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.engines.port import Refused
from tests.kafka.oauth_logins import ALLOWED, bearer, broker, settings, token_file
from tests.kafka.sidecar_group import WITHIN_S, member, run
from tests.support.kafka import Kafka
from tests.support.kafka.issuer import Issuer, issuing
from tests.support.kafka.oauth import CLIENT_ID

pytestmark = pytest.mark.kafka

TOPIC = f"{ALLOWED}topic"
SESSION_S = 3600


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with issuing(tmp_path_factory.mktemp("issuer") / "cluster") as issuer:
        yield issuer


@pytest.fixture(scope="module")
def kafka(issuer: Issuer) -> Iterator[Kafka]:
    with broker("oauth-tls", SESSION_S, issuer) as kafka:
        kafka.create_topic(TOPIC)
        yield kafka


def test_a_token_of_the_issuer_with_the_audience_logs_in(
    kafka: Kafka, issuer: Issuer, tmp_path: Path
) -> None:
    source = token_file(tmp_path, issuer.token(CLIENT_ID))

    async def join() -> None:
        async with member(settings(kafka, bearer(source)), f"{ALLOWED}group", TOPIC) as one:
            await one.serve()
            assert (await one.join()).error_code == pb.NONE
            assert await one.leave() == pb.NONE

    run(join())


@pytest.mark.parametrize("wrong", ["audience", "issuer", "key"])
def test_other_tokens_are_refused_with_what_to_check(
    kafka: Kafka, issuer: Issuer, tmp_path: Path, wrong: str
) -> None:
    match wrong:
        case "audience":
            token = issuer.token(CLIENT_ID, aud="another")
        case "issuer":
            token = issuer.token(CLIENT_ID, iss="another")
        case _:
            other = Issuer(tmp_path / "other")
            other.url = issuer.url
            token = other.token(CLIENT_ID)

    async def find() -> None:
        async with member(
            settings(kafka, bearer(token_file(tmp_path, token))), f"{ALLOWED}group", TOPIC
        ) as one:
            with pytest.raises(
                Refused, match="rejects the token of 'rota' with OAUTHBEARER; check the issuer"
            ) as refused:
                await one.coordination.find(WITHIN_S)
            assert token not in str(refused.value)

    run(find())
