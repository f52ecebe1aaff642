"""`rota groups reset` on Rota: a dry run shows and changes nothing, and a group with members is left alone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota import Producer, create_topics
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


def committed(rota: Rota, group: str) -> list[int]:
    return [each["offset"] for each in rota("groups", "offsets", group, "-o", "json").data]


def test_a_dry_run_shows_old_and_new_and_changes_nothing(rota: Rota, group: str) -> None:
    done = rota("groups", "reset", group, "--to-earliest", "--dry-run")
    assert [line.split() for line in done.lines] == [
        ["TOPIC", "PARTITION", "OLD", "NEW", "CHANGE", "REMARK"],
        [group, "0", "4", "0", "-4", "-"],
        [group, "1", "5", "0", "-5", "-"],
    ]
    assert done.stderr == "dry run, nothing changed; use --execute to apply\n"
    assert committed(rota, group) == [4, 5]


def test_execute_does_what_the_dry_run_has_shown(rota: Rota, group: str) -> None:
    shown = rota("groups", "reset", group, "--shift-by", "-2", "--dry-run", "-o", "json").data
    done = rota("groups", "reset", group, "--shift-by", "-2", "--execute", "-o", "json").data
    assert (shown["executed"], done["executed"]) == (False, True)
    assert shown["partitions"] == done["partitions"]
    assert shown["refusal"] is done["refusal"] is None
    assert committed(rota, group) == [each["new"] for each in done["partitions"]] == [2, 3]


def test_times_are_looked_up_in_the_log(rota: Rota, coordinator: Coordinator, name: str) -> None:
    create_topics(rota.servers, {name: 1})
    old_ms, new_ms = 1_789_862_400_000, 1_789_866_000_000
    with Producer(rota.servers) as producer:
        for at_ms in (old_ms, old_ms, new_ms):
            producer.send(name, b"x", timestamp_ms=at_ms)
    commit(coordinator.address, name, {(name, 0): 3})
    between = datetime.fromtimestamp(old_ms / 1000 + 1, UTC).isoformat()
    rota("groups", "reset", name, "--to-datetime", between, "--execute")
    assert committed(rota, name) == [2]
    # Longer ago than any of them.
    assert rota("groups", "reset", name, "--by-duration", "P9999D", "--execute").code == 0
    assert committed(rota, name) == [0]


def test_the_current_offsets_are_kept_and_missing_ones_are_set(rota: Rota, group: str) -> None:
    added = f"{group}-2"
    rota("topics", "create", added)
    chosen = ["--topic", group, "--topic", added]
    done = rota("groups", "reset", group, "--to-current", *chosen, "--execute", "-o", "json").data
    assert [(each["old"], each["new"]) for each in done["partitions"]] == [(4, 4), (5, 5), (None, 0)]
    assert committed(rota, group) == [4, 5, 0]


def test_topics_and_partitions_are_chosen_and_the_rest_stays(rota: Rota, group: str) -> None:
    assert rota("groups", "reset", group, "--to-latest", "--topic", f"{group}:0", "--execute").code == 0
    assert committed(rota, group) == [10, 5]
    wrong = rota("groups", "reset", group, "--to-latest", "--topic", f"{group}:0,7", "--execute")
    assert (wrong.code, "has no partition 7" in wrong.error) == (4, True)
    assert rota("groups", "reset", group, "--to-latest", "--topic", "not-there", "--execute").code == 4


def test_a_group_is_prepared_before_its_first_member(rota: Rota, name: str) -> None:
    fill(rota.servers, name, 3)
    assert rota("groups", "reset", name, "--to-latest", "--execute").code == 4
    assert rota("groups", "reset", name, "--to-latest", "--execute", "--topic", name).code == 0
    assert committed(rota, name) == [3]


def test_a_group_with_members_is_not_changed_and_the_way_is_said(
    rota: Rota, group: str, tmp_path: Path
) -> None:
    with two_members(tmp_path, rota.servers, group, group, partitions=2):
        done = rota("groups", "reset", group, "--to-earliest", "--execute")
        assert done.code == 1
        assert done.error == (
            f"group {group} has members: stop its consumers first, or run the reset in the folder where `rota up` runs them"
        )
        dry = rota("groups", "reset", group, "--to-earliest", "--dry-run")
        assert len(dry.lines) == 3
        assert dry.stderr == f"dry run, nothing changed; --execute would be rejected: {done.error}\n"
        data = rota("groups", "reset", group, "--to-earliest", "--dry-run", "-o", "json").data
        assert (data["executed"], data["refusal"]) == (False, done.error)
        assert committed(rota, group) == [4, 5]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--to-earliest"], "add --dry-run to print the plan, or --execute to apply it"),
        (["--dry-run"], "expected exactly one of --to-earliest, "),
        (["--to-earliest", "--to-latest", "--dry-run"], "expected exactly one of --to-earliest, "),
        (["--to-datetime", "noon", "--dry-run"], "--to-datetime noon: expected a time such as"),
        (["--to-offset", "-1", "--dry-run"], "'--to-offset': Input should be greater than or equal to 0"),
        (["--to-latest", "--dry-run", "--topic", "a:b"], "--topic a:b: expected TOPIC, or TOPIC:0,2"),
    ],
)
def test_an_ambiguous_target_is_refused(rota: Rota, flags: list[str], says: str) -> None:
    done = rota("groups", "reset", "shop", *flags)
    assert (done.code, says in done.error) == (2, True)
