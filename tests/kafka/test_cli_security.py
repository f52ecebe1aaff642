"""`rota` with a login over TLS, on a real Kafka broker that refuses all others."""

from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.support.kafka.fixtures import StartKafka
from tests.support.kafka.security import MECHANISMS, ScramTls

pytestmark = pytest.mark.kafka


def test_a_login_is_shown_and_a_wrong_one_is_refused_with_a_message(
    start_kafka: StartKafka, tmp_path: Path
) -> None:
    kafka = start_kafka(security="scram-tls")
    security = kafka.security
    assert isinstance(security, ScramTls)
    user, right, wrong = tmp_path / "user", tmp_path / "right", tmp_path / "wrong"
    for file, content in ((user, security.user), (right, security.password), (wrong, "not-the-password")):
        file.write_text(content)
    rota = Rota(kafka.bootstrap, tmp_path)
    login = [
        "--tls-ca",
        str(security.ca),
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
