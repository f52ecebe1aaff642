"""`rota doctor`: what is wrong is found, and named with what to do."""

from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.cli.groups import fill, two_members
from tests.support.coordinator import Coordinator
from tests.support.processes import free_port

pytestmark = pytest.mark.process


def test_nothing_is_wrong_with_a_server_that_serves(rota: Rota) -> None:
    done = rota("doctor")
    assert done.lines[-1] == "nothing is wrong that can be seen from here"
    assert {line.split()[0] for line in done.lines[:-1]} == {"ok"}
    checks = rota("doctor", "-o", "json").data
    assert [each["what"] for each in checks] == [
        "parts",
        "address",
        "reachable",
        "coordinator",
        "records",
        "groups",
    ]


def test_a_server_that_is_not_there_ends_the_look_with_code_3(rota: Rota) -> None:
    done = rota("doctor", "-b", f"rota://127.0.0.1:{free_port()}")
    assert done.code == 3
    last = done.said.splitlines()[-1]
    assert last.startswith("failed    reachable")
    assert "`rota coordinator` or `rota up` start one here" in last


def test_a_port_of_something_else_is_told_from_one_where_nobody_is(
    rota: Rota, coordinator: Coordinator
) -> None:
    done = rota("doctor", "-b", f"rota://{coordinator.http}", "--timeout", "3")
    assert done.code == 3
    assert "ok        reachable    somebody listens on" in done.said
    assert "speaks HTTP, and no gRPC" in done.said.splitlines()[-1]


def test_a_folder_that_names_another_server_is_noticed(rota: Rota, tmp_path: Path) -> None:
    (tmp_path / ".rota").mkdir()
    (tmp_path / ".rota/address").write_text("rota://127.0.0.1:9\n")
    done = rota("doctor")
    (line,) = (line for line in done.lines if line.startswith("warning"))
    assert ".rota/address names another server" in line


def test_a_token_that_others_may_read_is_noticed(rota: Rota, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o644)
    token.write_text("secret")
    done = rota("doctor", "--token-file", str(token))
    assert f"others on this machine may read {token}: run chmod 600 {token}" in done.said


def test_members_without_partitions_are_noticed(rota: Rota, name: str, tmp_path: Path) -> None:
    fill(rota.servers, name, 0)
    with two_members(tmp_path, rota.servers, name, name, partitions=1):
        done = rota("doctor")
    assert done.code == 0
    assert f"group {name}: 1 of 2 members has nothing, with 1 partition" in done.said
