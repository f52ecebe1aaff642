"""Reported changes of a group and explanations of its state, without any server."""

from dataclasses import replace

from rota.records import TopicPartition
from rota_cli.clusters.model import Group, Member, Subscription
from rota_cli.diagnosis.changes import describe_changes
from rota_cli.diagnosis.explanation import explain

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
WHERE = "the log has it"


def member(
    name: str, *partitions: TopicPartition, came_with: tuple[TopicPartition, ...] = (), since: int = -1
) -> Member:
    return Member(name, "", "app", "/here", partitions, Subscription(["orders"], came_with, since))


def group(*members: Member, state: str = "Stable", generation: int = 7) -> Group:
    leader = members[0].member_id if members else ""
    return Group("shop", state, "consumer", "cooperative-sticky", members, generation, 1, leader, "here:1")


def says(found: Group, about: str, topics: dict[str, int] | None = None, reason: str = "") -> list[str]:
    return [
        each.message
        for each in explain(found, topics if topics is not None else {"orders": 3}, reason, WHERE)
        if each.about == about
    ]


def test_each_change_is_reported_once() -> None:
    one = group(member("a", P0, P1, P2))
    assert describe_changes(None, one) == ["Stable in generation 7"]
    assert describe_changes(one, one) == []
    joining = group(member("a", P0, P1, P2), member("b"), state="PreparingRebalance")
    assert describe_changes(one, joining) == ["PreparingRebalance in generation 7", "b joined"]
    two = group(member("a", P0, P1), member("b", P2), generation=8)
    assert describe_changes(joining, two) == ["Stable in generation 8", "orders[2]: a → b"]
    left = group(member("b", P2), generation=9)
    assert describe_changes(two, left) == ["Stable in generation 9", "a left", "orders[0-1]: a → unassigned"]
    assert describe_changes(left, replace(group(), state="Dead"))[0] == "group does not exist"


def test_partitions_moved_by_the_last_rebalance_are_read_from_the_members_subscriptions() -> None:
    found = group(
        member("a", P0, came_with=(P0, P1), since=6),
        member("b", P1, P2, came_with=(P2,), since=6),
        member("c", since=-1),
    )
    assert says(found, "assignment")[:4] == [
        "a is the leader and assigned with cooperative-sticky",
        "a owns orders[0]: in the last rebalance it kept orders[0], lost orders[1] to b",
        "b owns orders[1-2]: in the last rebalance it kept orders[2], gained orders[1]",
        "c owns no partitions",
    ]
    assert "c joined in the last rebalance, or had lost its partitions before it" in says(found, "rebalance")


def test_nothing_is_guessed() -> None:
    found = explain(group(member("a", P0), member("b", P1)), {"orders": 2}, "", WHERE)
    unknown = [each.message for each in found if not each.known]
    assert len(unknown) == 3
    assert unknown[0] == WHERE
    assert unknown[1].startswith("no member reports what it owned before")
    assert unknown[2].startswith("the coordinator cannot say why there are this many members")


def test_a_reason_of_the_coordinator_goes_first() -> None:
    assert says(group(member("a", P0)), "rebalance", reason="b left")[0] == (
        "the last rebalance was triggered by: b left"
    )


def test_what_is_left_over_is_named_with_what_to_do() -> None:
    assert says(group(member("a", P0, P1)), "assignment")[-1].startswith(
        "orders[2] has no owner: it was added after"
    )
    idle = says(group(member("a", P0), member("b")), "assignment", {"orders": 1})[-1]
    assert idle == "1 of 2 members is idle, with 1 partition: add partitions or run fewer members"
    assert says(group(member("a")), "assignment", {})[-1].startswith("subscribed topic orders does not exist")


def test_states_on_the_way_are_explained() -> None:
    assert says(group(member("a"), state="PreparingRebalance"), "state")[0].startswith(
        "rebalance in progress"
    )
    assert says(group(member("a"), state="CompletingRebalance"), "state")[0].startswith(
        "all members have joined"
    )
    assert says(group(state="Empty"), "rebalance") == []
