"""`rota groups`: what is said of groups with members and without, on Rota's coordinator."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rota import Producer
from tests.cli.command import Rota
from tests.cli.groups import commit, fill, two_members
from tests.support.coordinator import Coordinator
from tests.support.sidecar import Sidecar

pytestmark = pytest.mark.process

GROUP, TOPIC = "shop", "orders"


@dataclass(frozen=True)
class Crew:
    """
    Two members with three partitions: of the first 4 of 10 records are done, of the second all, of the third an
    unknown number.
    """

    first: Sidecar
    second: Sidecar


@pytest.fixture(scope="module")
def crew(coordinator: Coordinator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    servers = f"rota://{coordinator.address}"
    fill(servers, TOPIC, 10, 5, 5)
    commit(coordinator.address, GROUP, {(TOPIC, 0): 4, (TOPIC, 1): 5})
    with two_members(tmp_path_factory.mktemp("crew"), servers, GROUP, TOPIC) as (first, second):
        yield Crew(first, second)


def test_a_list_names_groups_with_members_and_without(
    rota: Rota, crew: Crew, coordinator: Coordinator
) -> None:
    commit(coordinator.address, "tool", {(TOPIC, 0): 1})
    listed = rota("groups", "list", "-o", "json").data
    assert {"group": GROUP, "type": "Classic", "state": "Stable", "protocol": "consumer"} in listed
    assert {"group": "tool", "type": "Classic", "state": "Empty", "protocol": ""} in listed
    assert ["shop", "Classic", "Stable", "consumer"] in [
        line.split() for line in rota("groups", "list").lines
    ]


def test_a_description_says_who_leads_and_who_has_what(rota: Rota, crew: Crew) -> None:
    found = rota("groups", "describe", GROUP, "-o", "json").data
    assert (found["state"], found["strategy"]) == ("Stable", "cooperative-sticky")
    assert (found["generation"], found["incarnation"]) == (crew.first.events[-1]["generation"], 1)
    members = {each["client_id"]: each for each in found["members"]}
    assert sorted(members) == ["first", "rota"]
    assert members["rota"]["instance_id"] == "second"
    assert [each["leader"] for each in found["members"]].count(True) == 1
    assigned = {(TOPIC, number) for each in members.values() for number in each["assigned"][TOPIC]}
    assert assigned == crew.first.partitions | crew.second.partitions
    assert set(members["first"]["assigned"][TOPIC]) == {number for _, number in crew.first.partitions}

    said = rota("groups", "describe", GROUP).stdout
    assert "state:       Stable\n" in said
    assert "MEMBER-ID" in said


def test_members_are_shown_with_runs_of_partitions(rota: Rota, crew: Crew) -> None:
    lines = rota("groups", "members", GROUP).lines
    assert lines[0].split() == [
        "MEMBER-ID",
        "INSTANCE-ID",
        "CLIENT-ID",
        "HOST",
        "LEADER",
        "PARTITIONS",
        "ASSIGNED",
    ]
    assert len(lines) == 3
    (second,) = (line for line in lines if " second " in line)
    topic, _, runs = second.split()[-1].rstrip("]").partition("[")
    assert topic == TOPIC
    assert set(numbers_in(runs)) == {number for _, number in crew.second.partitions}


def test_all_groups_are_described_and_measured(rota: Rota, crew: Crew, coordinator: Coordinator) -> None:
    commit(coordinator.address, "tool", {(TOPIC, 0): 1})
    described = rota("groups", "describe", "--all-groups", "-o", "json").data
    names = [each["group"] for each in described]
    assert {GROUP, "tool"} <= set(names)
    assert names == [each["group"] for each in rota("groups", "list", "-o", "json").data]
    one = rota("groups", "describe", GROUP, "-o", "json").data
    assert (one["type"], one in described) == ("Classic", True)
    text = rota("groups", "describe", "tool", GROUP, "tool").stdout
    blocks = [block.split()[1] for block in text.split("\n\n") if block.startswith("group:")]
    assert blocks == ["tool", GROUP]

    measured = {each["group"]: each for each in rota("groups", "lag", "--all-groups", "-o", "json").data}
    assert set(measured) == set(names)
    assert (measured["tool"]["lag_records"], measured[GROUP]["unknown_partitions"]) == (None, 1)
    done = rota("groups", "lag", "tool", GROUP)
    assert done.lines[0].split()[:3] == ["GROUP", "TOPIC", "PARTITION"]
    assert [line.split()[:5] for line in done.lines[1:] if line.startswith(GROUP)][:2] == [
        [GROUP, TOPIC, "0", "4", "0"],
        [GROUP, TOPIC, "1", "5", "0"],
    ]
    assert [line.split(" has")[0] for line in done.stderr.splitlines()] == ["group tool", f"group {GROUP}"]


@pytest.mark.parametrize("command", ["describe", "lag"])
def test_groups_are_named_or_all_are_meant(rota: Rota, command: str) -> None:
    for arguments in ([], ["shop", "--all-groups"]):
        done = rota("groups", command, *arguments)
        assert (done.code, done.error) == (2, "name at least one group, or pass --all-groups")


def numbers_in(runs: str) -> Iterator[int]:
    """`0-2,5` are 0, 1, 2 and 5."""
    for run in runs.split(","):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


def test_lag_counts_what_is_known_and_says_what_is_not(rota: Rota, crew: Crew) -> None:
    done = rota("groups", "lag", GROUP)
    rows = [line.split() for line in done.lines]
    assert rows[0] == [
        "TOPIC",
        "PARTITION",
        "COMMITTED",
        "START",
        "END",
        "LAG-RECORDS",
        "LAG-SECONDS",
        "OWNER",
    ]
    assert [row[:6] for row in rows[1:]] == [
        [TOPIC, "0", "4", "0", "10", "6"],
        [TOPIC, "1", "5", "0", "5", "0"],
        [TOPIC, "2", "-", "0", "5", "-"],
    ]
    assert rows[2][6] == "0.0"
    assert rows[3][6] == "-"
    assert "group shop has a lag of 6 records, the oldest is" in done.stderr
    assert "1 partition is not counted" in done.stderr

    whole = rota("groups", "lag", GROUP, "-o", "json").data
    assert (whole["lag_records"], whole["lag_seconds"], whole["unknown_partitions"]) == (None, None, 1)
    assert whole["partitions"][0]["lag_seconds"] > 0
    assert whole["partitions"][2]["lag_records"] is None
    assert {each["owner"] for each in whole["partitions"]} == {"second", member_id_of(crew.first)}


def test_open_transactions_and_control_markers(rota: Rota, crew: Crew) -> None:
    """A group that is at the last record lags by the marker behind it, and by nothing of any age."""
    topic, group = "marked", "marked"
    fill(rota.servers, topic, 0)
    with Producer(rota.servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"done", partition=0)
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0, timestamp_ms=1_000)
        producer.flush()
        commit(rota.servers.removeprefix("rota://"), group, {(topic, 0): 1})
        stable = rota("groups", "lag", group, "--read-committed", "-o", "json").data
        whole = rota("groups", "lag", group, "-o", "json").data
        producer.abort_transaction()
    assert (stable["lag_records"], stable["lag_seconds"]) == (1, 0)
    assert whole["lag_records"] == 2
    assert whole["lag_seconds"] > 1_000_000


def member_id_of(sidecar: Sidecar) -> str:
    return str(sidecar.events[-1]["member_id"])


def test_offsets_are_those_that_were_committed(rota: Rota, crew: Crew) -> None:
    found = rota("groups", "offsets", GROUP, "-o", "json").data
    assert [(each["topic"], each["partition"], each["offset"]) for each in found] == [
        (TOPIC, 0, 4),
        (TOPIC, 1, 5),
    ]


def test_a_group_with_members_is_not_deleted(rota: Rota, crew: Crew) -> None:
    done = rota("groups", "delete", GROUP, "--yes")
    assert done.code == 1
    assert done.error.startswith("group shop has members: stop its consumers first")
    assert rota("groups", "offsets", GROUP).code == 0


def test_a_group_without_members_is_deleted_when_it_is_meant(
    rota: Rota, coordinator: Coordinator, name: str
) -> None:
    fill(rota.servers, name, 1)
    commit(coordinator.address, name, {(name, 0): 1})
    assert "add --yes to confirm" in rota("groups", "delete", name).error
    assert rota("groups", "delete", name, "--yes").lines == [f"deleted {name}"]
    assert rota("groups", "offsets", name).code == 4


@pytest.mark.parametrize("command", ["describe", "members", "lag", "offsets", "delete"])
def test_a_group_that_is_not_there_is_code_4(rota: Rota, command: str) -> None:
    done = rota("groups", command, "nobody")
    assert done.code == 4
    assert done.error.startswith("group nobody not found at 127.0.0.1:")


def test_a_group_without_members_has_none_to_show(rota: Rota, coordinator: Coordinator, name: str) -> None:
    fill(rota.servers, name, 1)
    commit(coordinator.address, name, {(name, 0): 1})
    done = rota("groups", "members", name)
    assert (done.stdout, f"group {name} has no active members" in done.stderr) == ("", True)
    assert rota("groups", "members", name, "-o", "json").data == []
