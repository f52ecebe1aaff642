"""`rota doctor`: what is wrong is found, and named with what to do."""

from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.cli.groups import WITHIN_S, commit, fill, two_members
from tests.support.coordinator import Coordinator
from tests.support.ports import free_port
from tests.support.processes import wait_for
from tests.support.records import delete_records
from tests.support.sidecar import Sidecar, running, settle

pytestmark = pytest.mark.process


def test_nothing_is_wrong_with_a_server_that_serves(rota: Rota) -> None:
    done = rota("doctor")
    assert done.lines[-1] == "no problems found"
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
    last = done.stdout.splitlines()[-1]
    assert last.startswith("failed    reachable")
    assert "`rota coordinator` or `rota up` start one here" in last


def test_a_port_of_another_server_is_distinguished_from_a_closed_one(
    rota: Rota, coordinator: Coordinator
) -> None:
    done = rota("doctor", "-b", f"rota://{coordinator.http}", "--timeout", "3")
    assert done.code == 3
    assert f"ok        reachable    {coordinator.http} accepts connections" in done.stdout
    assert "speaks HTTP, not gRPC" in done.stdout.splitlines()[-1]


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
    assert f"{token} is readable by other users: run chmod 600 {token}" in done.stdout


def test_members_without_partitions_are_noticed(rota: Rota, name: str, tmp_path: Path) -> None:
    fill(rota.servers, name, 0)
    with two_members(tmp_path, rota.servers, name, name, partitions=1):
        done = rota("doctor")
    assert done.code == 0
    assert f"group {name}: 1 of 2 members is idle, with 1 partition" in done.stdout


def test_partitions_that_stand_still_are_named_by_doctor_and_explain(
    rota: Rota, name: str, tmp_path: Path
) -> None:
    address = rota.servers.removeprefix("rota://")
    fill(rota.servers, name, 4, 4, 4)
    delete_records(address, name, 0, 4)
    commit(address, name, {(name, 0): 1, (name, 2): 0})
    member = Sidecar(tmp_path, rota.servers, name, [f"--topics={name},{name}-missing"])
    with running(member):
        wait_for("all is given out", lambda: len(member.partitions) == 3, within_s=WITHIN_S)
        settle(member)
        done = rota("doctor")
        explained = rota("groups", "explain", name, "-o", "json").data
    reading = [each["says"] for each in explained if each["about"] == "reading"]
    assert [said.split(":")[0] for said in reading] == [f"{name}[0]", f"{name}[1]"]
    assert "is no longer in the log" in reading[0]
    assert "no committed offset" in reading[1]
    for said in reading:
        assert f"group {name}: {said}" in done.stdout
    assert f"subscribed topic {name}-missing does not exist" in done.stdout
