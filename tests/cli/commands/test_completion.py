"""Completion of group IDs, as a shell asks the command for it."""

import pytest

from tests.cli.command import Rota
from tests.cli.groups import commit, fill
from tests.support.coordinator import Coordinator

pytestmark = pytest.mark.process


def complete(rota: Rota, line: str, environment: dict[str, str] | None = None) -> list[str]:
    """Return the words that bash offers in place of the last word of a line."""
    asked = {"_ROTA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = rota(environment={**asked, **(environment or {})})
    assert (done.code, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
def groups(rota: Rota, coordinator: Coordinator, name: str) -> list[str]:
    """Two groups whose names begin alike."""
    fill(rota.servers, name, 1)
    found = [f"{name}.billing", f"{name}.orders"]
    for group in found:
        commit(coordinator.address, group, {(name, 0): 1})
    return found


@pytest.mark.parametrize("command", ["describe", "lag", "offsets", "reset", "delete", "explain"])
def test_groups_that_begin_so_are_offered(rota: Rota, groups: list[str], name: str, command: str) -> None:
    assert complete(rota, f"rota groups {command} {name}") == groups
    assert complete(rota, f"rota groups {command} {groups[1][:-1]}") == groups[1:]


def test_flags_of_the_line_name_the_server(rota: Rota, groups: list[str], name: str) -> None:
    elsewhere = {"ROTA_BOOTSTRAP_SERVERS": "rota://127.0.0.1:1"}
    assert complete(rota, f"rota groups describe -b {rota.servers} {name}", elsewhere) == groups


def test_without_a_server_nothing_is_offered(rota: Rota, groups: list[str], name: str) -> None:
    elsewhere = {"ROTA_BOOTSTRAP_SERVERS": "rota://127.0.0.1:1"}
    assert complete(rota, f"rota groups describe {name}", elsewhere) == []
