"""The numbered cases of `range`."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings

from rota_sidecar.core.assignors.model import Group, Subscriber, Topic
from rota_sidecar.core.assignors.range import Range
from tests.sidecar.core.assignors.groups import as_text, everything, group, groups, member, spread
from tests.sidecar.core.assignors.racks import RACKS, spread_over, with_racks

EXAMPLES = settings(max_examples=60, derandomize=True)


def ranges(members: Mapping[str, Subscriber], **sizes: int) -> dict[str, str]:
    return as_text(Range().assign(group(members, **sizes)))


def test_case_1_a_member_without_topics_has_nothing() -> None:
    assert ranges({"a": member("")}, t=3) == {"a": ""}


def test_case_2_a_topic_that_is_not_there_is_nothing() -> None:
    assert ranges({"a": member("gone")}, t=3) == {"a": ""}


def test_case_3_one_member_has_its_topic_and_no_other() -> None:
    assert ranges({"a": member("t")}, t=3, u=2) == {"a": "t-0 t-1 t-2"}


def test_case_4_each_topic_is_cut_for_itself() -> None:
    found = ranges({"C0": member("t0 t1"), "C1": member("t0 t1")}, t0=3, t1=3)
    assert found == {"C0": "t0-0 t0-1 t1-0 t1-1", "C1": "t0-2 t1-2"}


def test_case_5_ten_for_three() -> None:
    found = ranges(dict.fromkeys("abc", member("t")), t=10)
    assert found == {"a": "t-0 t-1 t-2 t-3", "b": "t-4 t-5 t-6", "c": "t-7 t-8 t-9"}


def test_case_6_who_comes_too_late_has_nothing() -> None:
    assert ranges(dict.fromkeys("ab", member("t")), t=1) == {"a": "t-0", "b": ""}


def test_case_7_subscriptions_may_differ() -> None:
    members = {"c1": member("topic1"), "c2": member("topic1 topic2"), "c3": member("topic1")}
    found = ranges(members, topic1=3, topic2=2)
    assert found == {"c1": "topic1-0", "c2": "topic1-1 topic2-0 topic2-1", "c3": "topic1-2"}


def test_case_9_static_members_stand_by_instance() -> None:
    members = {
        "consumer-a": member("t0 t1", instance="instance2"),
        "consumer-b": member("t0 t1", instance="instance1"),
    }
    found = ranges(members, t0=3, t1=3)
    assert found == {"consumer-a": "t0-2 t1-2", "consumer-b": "t0-0 t0-1 t1-0 t1-1"}


def test_case_10_static_members_come_before_others() -> None:
    members = {"consumer-a": member("t"), "consumer-b": member("t", instance="instance1")}
    assert ranges(members, t=3) == {"consumer-a": "t-2", "consumer-b": "t-0 t-1"}


@pytest.mark.parametrize("fourth", ["c4", "a-new-one"])
def test_case_13_another_dynamic_member_changes_nothing_for_the_static_ones(fourth: str) -> None:
    members = {f"c{n}": member("t0 t1", instance=f"i{n}") for n in (1, 2, 3)}
    found = ranges({**members, fourth: member("t0 t1")}, t0=5, t1=4)
    assert found == {"c1": "t0-0 t0-1 t1-0", "c2": "t0-2 t1-1", "c3": "t0-3 t1-2", fourth: "t0-4 t1-3"}


LOCAL_AND_REMOTE = {rack: member("t1 t2 t3", rack=rack) for rack in "abc"}


def test_case_14_partitions_go_to_members_in_their_rack() -> None:
    found = as_text(Range().assign(Group(LOCAL_AND_REMOTE, spread_over(3, 1))))
    assert found == {
        "a": "t1-0 t1-3 t2-0 t2-3 t2-6",
        "b": "t1-1 t1-4 t2-1 t2-4 t3-0",
        "c": "t1-2 t1-5 t2-2 t2-5 t3-1",
    }


def test_case_15_replicas_in_every_rack_change_nothing() -> None:
    topics = spread_over(3, 3)
    plain = {name: Topic(topic.partitions) for name, topic in topics.items()}
    assert as_text(Range().assign(Group(LOCAL_AND_REMOTE, topics))) == as_text(
        Range().assign(Group(LOCAL_AND_REMOTE, plain))
    )


def test_case_16_racks_without_brokers_change_nothing() -> None:
    members = {rack: member("t1 t2 t3", rack=rack) for rack in "def"}
    topics = spread_over(3, 1)
    plain = {name: Topic(topic.partitions) for name, topic in topics.items()}
    assert as_text(Range().assign(Group(members, topics))) == as_text(Range().assign(Group(members, plain)))


def test_copartitioned_topics_stay_together_before_racks_count() -> None:
    here, there = frozenset("a"), frozenset("b")
    topics = {"t": Topic(2, (there, here)), "u": Topic(2, (there, here)), "v": Topic(2, (here, there))}
    members = {"x": member("t u", rack="a"), "y": member("t u", rack="b")}
    assert as_text(Range().assign(Group(members, topics))) == {"x": "t-1 u-1", "y": "t-0 u-0"}
    members = {name: Subscriber(["t", "u", "v"], rack=each.rack) for name, each in members.items()}
    assert as_text(Range().assign(Group(members, topics))) == {"x": "t-0 u-0 v-0", "y": "t-1 u-1 v-1"}


@EXAMPLES
@given(groups())
def test_p1_p2_p3_p5_each_topic_is_cut_evenly_and_in_order(of: Group) -> None:
    plan = Range().assign(of)
    found = spread(plan)
    assert sorted(p for partitions in found.values() for p in partitions) == sorted(everything(of))
    for topic in of.topics:
        takers = [plan[name] for name in sorted(of.members) if topic in of.members[name].topics]
        ranges = [list(lists.get(topic, ())) for lists in takers]
        assert [number for numbers in ranges for number in numbers] == list(range(sum(map(len, ranges))))
        lengths = list(map(len, ranges))
        assert lengths == sorted(lengths, reverse=True)
        assert not lengths or lengths[0] - lengths[-1] <= 1
    assert all(len(plan[name]) == len(list(plan[name])) for name in plan)


@EXAMPLES
@given(with_racks(groups()))
def test_p15_racks_change_who_but_not_how_many(of: Group) -> None:
    plain = Group(of.members, {name: Topic(topic.partitions) for name, topic in of.topics.items()})
    found, flat = Range().assign(of), Range().assign(plain)
    assert sorted(p for partitions in spread(found).values() for p in partitions) == sorted(everything(of))
    for topic in of.topics:
        sizes = sorted(len(found[name].get(topic, ())) for name in of.members)
        assert sizes == sorted(len(flat[name].get(topic, ())) for name in of.members)


@EXAMPLES
@given(groups())
def test_p15_replicas_everywhere_change_nothing(of: Group) -> None:
    members = {
        name: Subscriber(each.topics, rack=rack)
        for (name, each), rack in zip(of.members.items(), RACKS * 3, strict=False)
    }
    everywhere = {
        name: Topic(topic.partitions, [frozenset(RACKS)] * topic.partitions)
        for name, topic in of.topics.items()
    }
    assert spread(Range().assign(Group(members, everywhere))) == spread(Range().assign(of))


@EXAMPLES
@given(groups())
def test_p18_static_members_come_back_to_what_they_had(of: Group) -> None:
    before = {name: Subscriber(each.topics, instance_id=f"i-{name}") for name, each in of.members.items()}
    after = {f"z{26 - ord(name)}": each for name, each in before.items()}
    first, second = Range().assign(Group(before, of.topics)), Range().assign(Group(after, of.topics))
    assert {before[name].instance_id: partitions for name, partitions in spread(first).items()} == {
        after[name].instance_id: partitions for name, partitions in spread(second).items()
    }
