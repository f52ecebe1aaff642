"""A token is never sent to another machine in plain text: the credentials are refused before anything is sent."""

from collections.abc import Callable
from pathlib import Path

import pytest

import rota
from rota import errors
from rota_cli.clusters.connection import Connection, validate
from rota_cli.clusters.rota.records import sdk_credentials

# Reserved for documentation: no test can reach it.
FAR = "rota://192.0.2.1:7070"
MAKERS: dict[str, Callable[[rota.Credentials], object]] = {
    "Producer": lambda credentials: rota.Producer(bootstrap_servers=FAR, credentials=credentials),
    "LogReader": lambda credentials: rota.LogReader(FAR, credentials=credentials),
    "Topics": lambda credentials: rota.Topics(FAR, credentials=credentials),
    "Consumer": lambda credentials: rota.Consumer(
        "orders", group_id="billing", bootstrap_servers=FAR, credentials=credentials
    ),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_token_for_another_machine_needs_tls(
    make: Callable[[rota.Credentials], object], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("token-nobody-sees")
    with pytest.raises(errors.InvalidArgument, match=r"192\.0\.2\.1:7070.*unencrypted.*ca_file") as refused:
        make(rota.Credentials(token_file=token))
    assert "token-nobody-sees" not in str(refused.value)


def test_who_means_it_may_send_a_token_in_plain_text(tmp_path: Path) -> None:
    """Topics connect when they are asked for something: nothing is sent here."""
    token = tmp_path / "token"
    token.write_text("token-nobody-sees")
    rota.Topics(FAR, credentials=rota.Credentials(token_file=token, insecure=True)).close()


def test_the_command_line_passes_its_flag_on(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("token-nobody-sees")
    connection = Connection(FAR, "--bootstrap-servers", token_file=token, insecure=True)
    validate(connection)
    assert sdk_credentials(connection).insecure
