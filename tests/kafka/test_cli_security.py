"""`rota` with a login over TLS, on a real Kafka broker that refuses all others."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.cli.command import Rota
from tests.kafka.oauth_logins import ALLOWED, broker, security
from tests.support.kafka.fixtures import StartKafka
from tests.support.kafka.oauth import CLIENT_ID, CLIENT_SECRET, Answer, endpoint, unsecured
from tests.support.kafka.security import MECHANISMS, ScramTls

pytestmark = pytest.mark.kafka

TOPIC, GROUP = f"{ALLOWED}orders", "billing"


def test_a_login_is_shown_and_a_wrong_one_is_refused_with_a_message(
    start_kafka: StartKafka, tmp_path: Path
) -> None:
    kafka = start_kafka(security="scram-tls")
    known = kafka.security
    assert isinstance(known, ScramTls)
    user, right, wrong = tmp_path / "user", tmp_path / "right", tmp_path / "wrong"
    for file, content in ((user, known.user), (right, known.password), (wrong, "not-the-password")):
        file.write_text(content)
    rota = Rota(kafka.bootstrap, tmp_path)
    login = [
        "--tls-ca",
        str(known.ca),
        "--sasl-mechanism",
        MECHANISMS[0],
        "--sasl-username-file",
        str(user),
    ]

    assert rota("topics", "create", "orders", *login, "--sasl-password-file", str(right)).code == 0
    assert rota("produce", "orders", *login, "--sasl-password-file", str(right), stdin="x\n").code == 0
    shown = rota(
        "consume", "orders", "--from-beginning", "--value-only", *login, "--sasl-password-file", str(right)
    )
    assert shown.lines == ["x"]

    refused = rota("topics", "list", "--timeout", "5", *login, "--sasl-password-file", str(wrong))
    assert (refused.code, "rejected the SASL login" in refused.error) == (1, True)
    in_the_open = rota("topics", "list", "--timeout", "5")
    assert (in_the_open.code, "requires TLS (--tls-ca)" in in_the_open.error) == (3, True)


def test_bearer_tokens_of_a_file_and_of_an_endpoint(tmp_path: Path) -> None:
    token, secret, wrong = tmp_path / "token", tmp_path / "secret", tmp_path / "wrong"
    token.write_text(unsecured("admin"))
    secret.write_text(CLIENT_SECRET)
    wrong.write_text("wrong-secret-nobody-sees")
    with broker("oauth-tls", 3600) as kafka, endpoint(lambda: Answer.token("admin")) as idp:
        kafka.create_topic(TOPIC)
        rota = Rota(kafka.bootstrap, tmp_path)
        login = ["--tls-ca", str(security(kafka).ca), "--sasl-mechanism", "OAUTHBEARER"]
        of_file = [*login, "--sasl-oauthbearer-token-endpoint-url", f"file://{token}"]
        client = ["--sasl-oauthbearer-token-endpoint-url", idp.url, "--sasl-oauthbearer-client-id", CLIENT_ID]
        of_idp = [*login, *client, "--sasl-oauthbearer-client-secret-file"]

        assert rota("produce", TOPIC, *of_file, stdin="x\n").code == 0
        shown = rota("consume", TOPIC, "--from-beginning", "--value-only", *of_idp, str(secret))
        assert shown.lines == ["x"]

        committed = Consumer({**kafka.client_config(), "group.id": GROUP})
        committed.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        committed.close()
        # By kafka-python.
        deleted = rota("groups", "delete-offsets", GROUP, "--topic", TOPIC, "--yes", *of_idp, str(secret))
        assert deleted.lines == [f"deleted 1 committed offset of group {GROUP}: {TOPIC}[0]"]

        refused = rota("topics", "list", *of_idp, str(wrong))
        assert (refused.code, "rejects the client (401, invalid_client)" in refused.error) == (1, True)
        assert "nobody-sees" not in refused.error
        token.write_text(unsecured("admin") + "c2lnbmF0dXJl")
        rejected = rota("topics", "list", "--timeout", "5", *of_file)
        assert (rejected.code, "rejected the SASL login" in rejected.error) == (1, True)
        token.write_text("")
        empty = rota("topics", "list", *of_file)
        assert (empty.code, f"the token file {token} is empty; write the token to it" in empty.error) == (
            3,
            True,
        )
