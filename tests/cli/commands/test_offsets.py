"""`rota groups offsets --export` and `rota groups reset --from-file` on Rota: a round trip gives the same offsets."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.cli.groups import commit, fill, two_members
from tests.support.coordinator import Coordinator

pytestmark = pytest.mark.process


@pytest.fixture
def group(rota: Rota, coordinator: Coordinator, name: str) -> str:
    """Of 10 and 5 records 4 and 5 are done; its topic is called the same."""
    fill(rota.servers, name, 10, 5)
    commit(coordinator.address, name, {(name, 0): 4, (name, 1): 5})
    return name


@pytest.fixture
def other(rota: Rota, coordinator: Coordinator, group: str) -> str:
    """Another group of the same topic."""
    other = f"{group}-2"
    commit(coordinator.address, other, {(group, 1): 1})
    return other


def committed(rota: Rota, group: str) -> dict[int, int]:
    return {each["partition"]: each["offset"] for each in rota("groups", "offsets", group, "-o", "json").data}


@pytest.mark.parametrize("file", ["offsets.csv", "offsets.json"])
def test_offsets_of_one_group_are_exported_and_reset_to(rota: Rota, group: str, file: str) -> None:
    exported = rota("groups", "offsets", group, "--export", file)
    assert (exported.code, exported.stdout) == (0, "")
    assert exported.stderr == f"exported 2 offsets of {group} to {file}\n"
    rota("groups", "reset", group, "--to-latest", "--execute")
    assert committed(rota, group) == {0: 10, 1: 5}

    dry = rota("groups", "reset", group, "--from-file", file, "--dry-run", "-o", "json").data
    assert [(each["partition"], each["old"], each["new"]) for each in dry["partitions"]] == [
        (0, 10, 4),
        (1, 5, 5),
    ]
    assert committed(rota, group) == {0: 10, 1: 5}
    assert rota("groups", "reset", group, "--from-file", file, "--execute").code == 0
    assert committed(rota, group) == {0: 4, 1: 5}


def test_csv_is_as_kafkas_tool_writes_it(rota: Rota, group: str, other: str, tmp_path: Path) -> None:
    rota("groups", "offsets", group, "--export", "one.csv")
    assert (tmp_path / "one.csv").read_text() == f"{group},0,4\n{group},1,5\n"
    rota("groups", "offsets", other, group, "--export", "two.csv")
    assert (tmp_path / "two.csv").read_text().splitlines() == [
        f"{group},{group},0,4",
        f"{group},{group},1,5",
        f"{other},{group},1,1",
    ]


@pytest.mark.parametrize("file", ["offsets.csv", "offsets.json"])
def test_offsets_of_several_groups_are_exported_and_reset_to(
    rota: Rota, group: str, other: str, file: str, tmp_path: Path
) -> None:
    assert rota("groups", "offsets", "--all-groups", "--export", file).code == 0
    # Other tests of this coordinator have groups too.
    lines = [line for line in (tmp_path / file).read_text().splitlines() if group in line or len(line) == 1]
    text = "\n".join([*lines[:-2], lines[-2].rstrip(","), lines[-1]]) if file.endswith("json") else ""
    (tmp_path / file).write_text(text or "\n".join(lines))

    rota("groups", "delete", group, "--yes")
    rota("groups", "reset", other, "--to-latest", "--topic", f"{group}:1", "--execute")
    done = rota("groups", "reset", "--all-groups", "--from-file", file, "--execute")
    assert [line.split()[:5] for line in done.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "OLD", "NEW"],
        [group, group, "0", "-", "4"],
        [group, group, "1", "-", "5"],
        [other, group, "1", "5", "1"],
    ]
    assert done.stderr == f"reset 2 offsets of group {group}\nreset 1 offset of group {other}\n"
    assert (committed(rota, group), committed(rota, other)) == ({0: 4, 1: 5}, {1: 1})
    named = rota("groups", "reset", other, group, "--from-file", file, "--dry-run", "-o", "json").data
    assert [each["group"] for each in named] == [other, group]


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("{group},2,1", 4, "topic {group} has no partition 2 (it has 2): correct or remove the line"),
        ("{group},0,9", 2, "{group}[0] is on line 1 already: correct or remove the line"),
        ("{group},1,all", 2, 'expected an offset from 0 to 9223372036854775807, found "all": correct or'),
        ("other,{group},1,1", 2, "expected TOPIC,PARTITION,OFFSET, without a header: correct or remove"),
        ("gone,0,1", 4, "topic gone not found: correct or remove the line (see `rota topics list`)"),
    ],
)
def test_an_edited_file_is_refused_whole(
    rota: Rota, group: str, tmp_path: Path, line: str, code: int, says: str
) -> None:
    (tmp_path / "edited.csv").write_text(f"{group},0,0\n{line.format(group=group)}\n")
    done = rota("groups", "reset", group, "--from-file", "edited.csv", "--execute")
    assert done.code == code
    assert done.error.startswith(f"edited.csv:2: {says.format(group=group)}")
    assert committed(rota, group) == {0: 4, 1: 5}


def test_another_groups_offsets_are_refused(rota: Rota, group: str, tmp_path: Path) -> None:
    (tmp_path / "edited.csv").write_text(f"{group},{group},0,0\nother,{group},1,0\n")
    done = rota("groups", "reset", group, "--from-file", "edited.csv", "--execute")
    assert (done.code, done.error) == (
        2,
        "edited.csv:2: these are offsets of group other: remove the line, or name this group as well",
    )
    assert committed(rota, group) == {0: 4, 1: 5}


def test_groups_are_reset_together_or_not_at_all(rota: Rota, group: str, other: str, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text(f"{other},{group},1,0\n{group},{group},0,0\n")
    with two_members(tmp_path, rota.servers, group, group, partitions=2):
        done = rota("groups", "reset", other, group, "--from-file", "o.csv", "--execute")
        assert (done.code, done.error.startswith(f"group {group} has members: stop its")) == (1, True)
        dry = rota("groups", "reset", other, group, "--from-file", "o.csv", "--dry-run", "-o", "json").data
        assert [each["refusal"] for each in dry] == [None, done.error]
    assert (committed(rota, group), committed(rota, other)) == ({0: 4, 1: 5}, {1: 1})


def test_an_offset_outside_of_the_log_becomes_its_nearest(rota: Rota, group: str, tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text(f"{group},0,11\n")
    done = rota("groups", "reset", group, "--from-file", "o.csv", "--execute", "-o", "json").data
    assert done["partitions"][0]["remark"] == "11 is out of range; using the log end"
    assert committed(rota, group) == {0: 10, 1: 5}


def test_a_group_without_offsets_is_not_exported(
    rota: Rota, coordinator: Coordinator, name: str, tmp_path: Path
) -> None:
    assert rota("groups", "offsets", name, "--export", "o.csv").code == 4
    fill(rota.servers, name, 1)
    assert list(tmp_path.iterdir()) == []


def test_offsets_of_several_groups_are_listed_with_their_group(rota: Rota, group: str, other: str) -> None:
    found = rota("groups", "offsets", group, other, "-o", "json").data
    assert [(each["group"], each["partition"], each["offset"]) for each in found] == [
        (group, 0, 4),
        (group, 1, 5),
        (other, 1, 1),
    ]
    assert json.dumps(found[0]) in json.dumps(rota("groups", "offsets", "--all-groups", "-o", "json").data)


@pytest.mark.parametrize("arguments", [[], ["shop", "--all-groups"]])
def test_groups_are_named_or_all_are_meant(rota: Rota, arguments: list[str]) -> None:
    done = rota("groups", "offsets", *arguments)
    assert (done.code, done.error) == (2, "name at least one group, or pass --all-groups")
