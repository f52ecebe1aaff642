"""The numbered cases of `sticky`: equal subscriptions, claims, and subscriptions that differ."""

from collections.abc import Mapping

import pytest

from rota_sidecar.core.assignors.model import Group, Subscriber
from rota_sidecar.core.assignors.sticky import CooperativeSticky, Sticky
from tests.sidecar.core.assignors import oracle
from tests.sidecar.core.assignors.groups import (
    as_text,
    everything,
    group,
    holding,
    member,
    parsed,
    sizes_of,
    spread,
)

FOUR_BY_TWO = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
ALL_FOUR = "t0 t1 t2 t3"


def kept(members: Mapping[str, Subscriber], **sizes: int) -> dict[str, str]:
    return as_text(Sticky().assign(group(members, **sizes)))


def test_case_28_nobody_has_anything() -> None:
    found = kept(dict.fromkeys(("C0", "C1", "C2"), member(ALL_FOUR)), **FOUR_BY_TWO)
    assert found == {"C0": "t0-0 t1-1 t3-0", "C1": "t0-1 t2-0 t3-1", "C2": "t1-0 t2-1"}


def test_case_29_one_leaves_and_nothing_moves() -> None:
    members = {"C0": member(ALL_FOUR, "t0-0 t1-1 t3-0", 1), "C2": member(ALL_FOUR, "t1-0 t2-1", 1)}
    found = kept(members, **FOUR_BY_TWO)
    assert found == {"C0": "t0-0 t1-1 t2-0 t3-0", "C2": "t0-1 t1-0 t2-1 t3-1"}


def test_case_30_what_is_free_goes_to_the_first() -> None:
    members = {"c1": member("t1 t2", "t1-0 t2-1", 1), "c2": member("t1 t2", "t1-1 t2-2", 1)}
    assert kept(members, t1=2, t2=3) == {"c1": "t1-0 t2-0 t2-1", "c2": "t1-1 t2-2"}


def test_case_32_what_is_free_goes_to_who_has_least() -> None:
    members = {"c1": member("t1 t2", "t1-0", 1), "c2": member("t1 t2", "t1-1", 1), "c3": member("t1 t2")}
    assert kept(members, t1=2, t2=3) == {"c1": "t1-0 t2-1", "c2": "t1-1 t2-2", "c3": "t2-0"}


def test_case_33_one_joins_and_one_leaves() -> None:
    members = {"c1": member("t", "t-0 t-1 t-2", 1), "c2": member("t")}
    assert kept(members, t=3) == {"c1": "t-0 t-1", "c2": "t-2"}
    assert kept({"c2": member("t", "t-2", 2)}, t=3) == {"c2": "t-0 t-1 t-2"}


def test_case_34_each_topic_stays_evenly_spread() -> None:
    now = group({"c1": member("t u")}, t=12, u=12)
    for names in (("c1",), ("c1", "c2"), ("c1", "c2", "c3", "c4"), ("c1", "c3")):
        before = spread({name: each.owned for name, each in now.members.items()})
        now = Group({name: now.members.get(name, member("t u")) for name in names}, now.topics)
        plan = Sticky().assign(now)
        each = 12 // len(names)
        assert all([len(lists["t"]), len(lists["u"])] == [each, each] for lists in plan.values())
        for name, partitions in spread(plan).items():
            had = before.get(name, set())
            assert had <= partitions or partitions <= had
        now = holding(now, plan, len(names))


def test_case_35_dealing_goes_round() -> None:
    found = kept(dict.fromkeys(("c1", "c2"), member("t1 t2")), t1=3, t2=4)
    assert found == {"c1": "t1-0 t1-2 t2-1 t2-3", "c2": "t1-1 t2-0 t2-2"}


def test_case_37_who_has_least_gets_first() -> None:
    members = {"c3": member("t1 t2", "t1-2 t2-3", 3), "c4": member("t1 t2", "t2-2", 3)}
    found = kept(members, t1=3, t2=4)
    assert sorted(len(text.split()) for text in found.values()) == [3, 4]
    assert found == {"c3": "t1-1 t1-2 t2-1 t2-3", "c4": "t1-0 t2-0 t2-2"}


def test_case_38_a_topic_comes_and_goes() -> None:
    members = {"c1": member("t u", "t-0 t-2", 1), "c2": member("t u", "t-1", 1)}
    plan = Sticky().assign(group(members, t=3, u=3))
    assert sizes_of(plan) == [3, 3]
    assert parsed("t-0 t-2") <= spread(plan)["c1"]
    assert parsed("t-1") <= spread(plan)["c2"]
    after = holding(group(members, t=3, u=3), plan, 2)
    last = Sticky().assign(Group(after.members, {"u": after.topics["u"]}))
    assert sorted(sizes_of(last)) == [1, 2]
    assert all(partitions <= spread(plan)[name] for name, partitions in spread(last).items())


@pytest.mark.parametrize(("subscribed", "sizes"), [("", {"t": 3}), ("t", {}), ("t", {"t": 0})])
def test_case_40_nothing_to_give(subscribed: str, sizes: Mapping[str, int]) -> None:
    assert kept({"a": member(subscribed, "t-0", 1), "b": member(subscribed)}, **sizes) == {"a": "", "b": ""}


def test_case_41_a_claim_of_a_partition_that_does_not_exist_is_ignored() -> None:
    plan = Sticky().assign(group({"a": member("t", "t-9 t-1", 1), "b": member("t")}, t=3))
    assert sorted(p for partitions in spread(plan).values() for p in partitions) == sorted(
        parsed("t-0 t-1 t-2")
    )
    assert parsed("t-1") <= spread(plan)["a"]


@pytest.mark.parametrize("number", [-1, 2**31, 2**40, -(2**40)])
def test_case_41_nor_is_one_that_no_topic_can_have(number: int) -> None:
    plan = Sticky().assign(group({"a": Subscriber(["t"], {"t": [number, 2]}, 1)}, t=3))
    assert as_text(plan) == {"a": "t-0 t-1 t-2"}


def test_case_43_who_takes_nothing_is_given_nothing() -> None:
    assert kept({"a": member(""), "b": member("t1")}, t1=4) == {"a": "", "b": "t1-0 t1-1 t1-2 t1-3"}


def test_case_45_what_is_balanced_comes_back() -> None:
    members = {"a": member("t", "t-0 t-3", 4), "b": member("t", "t-1 t-2", 4)}
    plan = Sticky().assign(group(members, t=4))
    assert [plan[name] is members[name].owned for name in "ab"] == [True, True]


@pytest.mark.parametrize("older", [9, -1])
def test_case_46_47_the_newer_generation_keeps(older: int) -> None:
    members = {"c1": member("t", "t-0 t-1 t-2", 10), "c2": member("t", "t-0 t-1 t-2", older)}
    plan = CooperativeSticky().assign(group(members, t=6))
    assert as_text(plan) == {"c1": "t-0 t-1 t-2", "c2": "t-3 t-4 t-5"}


TORN = {"c1": member("t", "t-0 t-1", 1), "c2": member("t", "t-0 t-2", 1), "c3": member("t")}


def test_case_48_what_two_claim_equally_nobody_has() -> None:
    assert kept(TORN, t=3) == {"c1": "t-1", "c2": "t-2", "c3": "t-0"}


def test_case_51_old_claims_that_nobody_disputes_count() -> None:
    members = {
        "a": member(ALL_FOUR, "t0-0 t0-1 t0-2", 9),
        "b": member(ALL_FOUR, "t1-0 t1-1 t1-2", 8),
        "c": member(ALL_FOUR, "t2-0 t2-1 t2-2", 7),
        "d": member(ALL_FOUR),
    }
    found = kept(members, t0=3, t1=3, t2=3, t3=3)
    assert found["d"] == "t3-0 t3-1 t3-2"
    assert found["c"] == "t2-0 t2-1 t2-2"


@pytest.mark.parametrize("newest", ["a", "b", "c"])
def test_case_52_the_newest_keeps_whatever_the_ids(newest: str) -> None:
    members = {name: member("t", "t-0", 3 if name == newest else 2) for name in "abc"}
    assert kept(members, t=1) == {name: "t-0" if name == newest else "" for name in "abc"}


STAIRCASE = {"C0": member("t0"), "C1": member("t0 t1"), "C2": member("t0 t1 t2")}
STEPS = {"t0": 1, "t1": 2, "t2": 3}


def test_case_56_the_staircase() -> None:
    first = Sticky().assign(group(STAIRCASE, **STEPS))
    assert as_text(first) == {"C0": "t0-0", "C1": "t1-0 t1-1", "C2": "t2-0 t2-1 t2-2"}
    later = holding(group(STAIRCASE, **STEPS), first, 1)
    members = {name: each for name, each in later.members.items() if name != "C0"}
    assert kept(members, **STEPS) == {"C1": "t0-0 t1-0 t1-1", "C2": "t2-0 t2-1 t2-2"}


def test_case_57_who_can_take_more_leaves_the_rest_to_others() -> None:
    members = {"c1": member("topic1"), "c2": member("topic1 topic2"), "c3": member("topic1")}
    found = kept(members, topic1=3, topic2=2)
    assert found["c2"] == "topic2-0 topic2-1"
    assert [len(found[name].split()) for name in ("c1", "c3")] == [2, 1]


def test_case_58_two_each() -> None:
    wide, narrow = member("t1 t2 t3 t4 t5"), member("t1 t3 t5")
    plan = Sticky().assign(
        group({"c1": wide, "c2": narrow, "c3": narrow, "c4": wide}, t1=2, t2=1, t3=2, t4=1, t5=2)
    )
    assert sizes_of(plan) == [2, 2, 2, 2]


def test_case_59_one_two_three_is_balanced() -> None:
    members = {
        "c1": member("s1 s2", "s1-0", 1),
        "c2": member("s1 s2 s3 s4", "s2-0 s3-0", 1),
        "c3": member("s2 s3 s4 s5 s6", "s4-0 s5-0 s6-0", 1),
    }
    found = kept(members, s1=1, s2=1, s3=1, s4=1, s5=1, s6=1)
    assert found == {"c1": "s1-0", "c2": "s2-0 s3-0", "c3": "s4-0 s5-0 s6-0"}


def test_case_61_topics_grow_and_nothing_moves() -> None:
    first = "T1-0 T1-1 T1-2 T1-3 T3-0 T3-1"
    second = "T2-0 T2-1 T2-2 T4-0 T4-1 T4-2"
    members = {"A": member("T1 T3", first, 1), "B": member("T1 T2 T3 T4", second, 1)}
    plan = Sticky().assign(group(members, T1=6, T2=5, T3=3, T4=3))
    assert sizes_of(plan) == [9, 8]
    assert parsed(first) <= spread(plan)["A"]
    assert parsed(second) <= spread(plan)["B"]


def test_case_63_what_only_one_can_take() -> None:
    members = {"A": member("T1 T3"), "B": member("T2", "T2-3 T2-4 T2-5 T2-6", 1)}
    found = kept(members, T1=2, T2=8, T3=2)
    assert found == {"A": "T1-0 T1-1 T3-0 T3-1", "B": " ".join(f"T2-{n}" for n in range(8))}


def test_case_64_a_little_of_every_topic_is_given_up() -> None:
    members = {"A": member("T1 T2 T3", "T1-0 T1-1 T2-0 T2-1 T3-0 T3-1", 1), "B": member("T1 T2 T3")}
    assert kept(members, T1=2, T2=2, T3=2) == {"A": "T1-0 T2-0 T3-0", "B": "T1-1 T2-1 T3-1"}


def test_case_65_a_topic_that_nobody_takes_is_nowhere() -> None:
    assert kept({"a": member("t")}, t=1, u=5) == {"a": "t-0"}


def test_case_66_nineteen_steps_without_the_tenth() -> None:
    topics = [f"topic{n:02}" for n in range(1, 20)]
    sizes = {topic: number for number, topic in enumerate(topics, 1)}
    whole = group({f"m{n:02}": member(" ".join(topics[:n])) for n in range(1, 20)}, **sizes)
    after = holding(whole, Sticky().assign(whole), 1)
    members = {name: each for name, each in after.members.items() if name != "m10"}
    found = spread(Sticky().assign(Group(members, after.topics)))
    assert oracle.could_be_lighter(Group(members, after.topics), found) == []
    assert set().union(*found.values()) == everything(Group(members, after.topics))
    before = spread({name: each.owned for name, each in members.items()})
    lost = {name: len(before[name] - partitions) for name, partitions in found.items()}
    assert all(len(found[name]) < len(before[name]) for name, count in lost.items() if count)


def test_case_68_one_odd_member_and_one_that_joins() -> None:
    topics = [f"t{n:02}" for n in range(50)]
    members = {"m00": member("t00")} | {f"m{n:02}": member(" ".join(topics)) for n in range(1, 40)}
    whole = group(members, **dict.fromkeys(topics, 40))
    after = holding(whole, Sticky().assign(whole), 1)
    joined = Group({**after.members, "new": member(" ".join(topics))}, after.topics)
    found = spread(Sticky().assign(joined))
    for name, each in after.members.items():
        assert found[name] <= spread({name: each.owned})[name]
    sizes = [len(partitions) for name, partitions in found.items() if name != "m00"]
    assert max(sizes) - min(sizes) <= 1


def test_case_77_a_topic_that_is_not_there_is_passed_by() -> None:
    """Kafka's coordinator refuses it, its clients do not; we are a client."""
    assert kept({"a": member("t gone")}, t=1) == {"a": "t-0"}


def test_case_78_three_and_two() -> None:
    plan = Sticky().assign(group(dict.fromkeys("AB", member("topic1 topic3")), topic1=3, topic3=2))
    assert sizes_of(plan) == [3, 2]
    assert set().union(*spread(plan).values()) == parsed("topic1-0 topic1-1 topic1-2 topic3-0 topic3-1")


@pytest.mark.parametrize(("first", "second"), [("A", "B"), ("B", "A")])
def test_case_80_who_has_the_extra_one_keeps_it(first: str, second: str) -> None:
    members = {first: member("t", "t-0", 1), second: member("t", "t-1 t-2", 1)}
    assert kept(members, t=3) == {first: "t-0", second: "t-1 t-2"}
