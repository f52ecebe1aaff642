"""`rota groups delete-offsets`: committed offsets of topics to which no member subscribes."""

from pathlib import Path

import pytest

from rota import errors
from rota.records import TopicPartition
from rota_cli.clusters.port import subscribed_topics
from rota_cli.commands.delete_offsets import choose_committed, members_subscribe
from rota_cli.commands.reset_plan import TopicSelection
from rota_cli.errors import NotFound
from tests.cli.command import Rota
from tests.cli.groups import commit, fill, two_members
from tests.support.coordinator import Coordinator

O0, O1, R0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)


def test_a_topic_means_its_committed_offsets_and_numbers_some_of_them() -> None:
    committed = {R0, O1, O0}
    assert choose_committed("g", committed, [TopicSelection("orders")]) == [O0, O1]
    assert choose_committed("g", committed, [TopicSelection("orders", (1,)), TopicSelection("orders")]) == [
        O0,
        O1,
    ]
    assert choose_committed("g", committed, [TopicSelection("orders", (1,)), TopicSelection("returns")]) == [
        O1,
        R0,
    ]


@pytest.mark.parametrize(
    ("selection", "where"),
    [
        (TopicSelection("gone"), "topic gone"),
        (TopicSelection("orders", (0, 7)), r"orders\[7\]"),
        (TopicSelection("gone", (0,)), r"gone\[0\]"),
    ],
)
def test_what_was_never_committed_is_not_deleted(selection: TopicSelection, where: str) -> None:
    with pytest.raises(NotFound, match=rf"^group g has no committed offsets in {where}: see"):
        choose_committed("g", {O0, O1}, [TopicSelection("orders"), selection])


def test_topics_with_subscribers_are_distinguished_from_other_errors() -> None:
    assert subscribed_topics({O0: 0, R0: 86}, "g", "here") == {"returns"}
    with pytest.raises(errors.UnknownTopicOrPartition, match=r"orders\[0\] of group g at here"):
        subscribed_topics({R0: 86, O0: 3}, "g", "here")


def test_the_error_says_what_was_kept_and_what_was_not() -> None:
    assert str(members_subscribe("g", {"returns", "orders"}, ())) == (
        "group g has members that subscribe to orders, returns, whose offsets are kept: "
        "stop these consumers, or change their subscription, and retry"
    )
    assert "whose offsets are kept; those of orders[0-1] are deleted: stop" in str(
        members_subscribe("g", {"returns"}, (O0, O1))
    )


@pytest.fixture
def group(rota: Rota, coordinator: Coordinator, name: str) -> str:
    """Offsets in two topics: one of its name, and one called after it."""
    fill(rota.servers, name, 3, 3)
    fill(rota.servers, f"{name}-old", 3)
    commit(coordinator.address, name, {(name, 0): 1, (name, 1): 2, (f"{name}-old", 0): 3})
    return name


def committed(rota: Rota, group: str) -> set[tuple[str, int]]:
    found = rota("groups", "offsets", group, "-o", "json").data
    return {(each["topic"], each["partition"]) for each in found}


@pytest.mark.process
def test_offsets_of_topics_and_partitions_are_deleted_when_it_is_meant(rota: Rota, group: str) -> None:
    unconfirmed = rota("groups", "delete-offsets", group, "--topic", f"{group}:1")
    assert unconfirmed.error == (
        f"the committed offsets of group {group} in {group}[1] would be deleted: add --yes to confirm"
    )
    done = rota("groups", "delete-offsets", group, "--topic", f"{group}:1", "--yes")
    assert done.lines == [f"deleted 1 committed offset of group {group}: {group}[1]"]
    assert committed(rota, group) == {(group, 0), (f"{group}-old", 0)}
    chosen = ["--topic", group, "--topic", f"{group}-old"]
    assert len(rota("groups", "delete-offsets", group, *chosen, "--yes").lines) == 1
    assert rota("groups", "delete-offsets", group, *chosen, "--yes").code == 4
    assert rota("groups", "delete-offsets", "nobody", "--topic", group, "--yes").code == 4
    assert rota("groups", "delete-offsets", group, "--yes").code == 2


@pytest.mark.process
def test_offsets_of_topics_that_members_subscribe_to_are_kept(rota: Rota, group: str, tmp_path: Path) -> None:
    with two_members(tmp_path, rota.servers, group, group, partitions=2):
        kept = rota("groups", "delete-offsets", group, "--topic", group, "--yes")
        assert (
            kept.code,
            kept.error.startswith(f"group {group} has members that subscribe to {group}, "),
        ) == (
            1,
            True,
        )
        assert committed(rota, group) == {(group, 0), (group, 1), (f"{group}-old", 0)}
        other = rota("groups", "delete-offsets", group, "--topic", f"{group}-old", "--yes")
        assert other.lines == [f"deleted 1 committed offset of group {group}: {group}-old[0]"]
        assert committed(rota, group) == {(group, 0), (group, 1)}
