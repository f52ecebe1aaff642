"""Checks of `rota doctor` on the given address, without any server."""

from itertools import islice
from pathlib import Path

import pytest

from rota_cli.clusters.connection import ADDRESS_FILE, Connection
from rota_cli.clusters.model import CheckStatus
from rota_cli.clusters.port import Cluster
from rota_cli.commands.doctor import run_checks


def address_check(written: str, connection: Connection) -> tuple[CheckStatus, str]:
    """Of a folder where `rota up` has written that; nothing is dialled."""
    ADDRESS_FILE.parent.mkdir()
    ADDRESS_FILE.write_text(f"{written}\n")

    def never(connection: Connection) -> Cluster:
        raise AssertionError("no server is asked")

    _, found = islice(run_checks(connection, never), 2)
    assert found.name == "address"
    return found.status, found.message


@pytest.mark.parametrize(
    ("written", "servers"),
    [
        ("rota://127.0.0.1:7070", "rota://127.0.0.1:7070"),
        ("", "rota://127.0.0.1:7070"),
        ("kafka://127.0.0.1:9092", "127.0.0.1:9092"),
        ("kafka://a:9092,b:9092", "a:9092,b:9092"),
    ],
)
def test_an_address_is_the_same_in_every_spelling(
    written: str, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = address_check(written, Connection(servers, str(ADDRESS_FILE)))
    assert found == (CheckStatus.OK, f"{servers}, from .rota/address")


@pytest.mark.parametrize("written", ["kafka://127.0.0.1:9093", "rota://127.0.0.1:9092", "no address", ""])
def test_another_address_in_the_folder_is_named(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict, says = address_check(written, Connection("127.0.0.1:9092", "--bootstrap-servers"))
    assert verdict is CheckStatus.WARNING
    assert ".rota/address names another server" in says
