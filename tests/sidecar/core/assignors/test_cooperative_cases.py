"""The numbered cases of `cooperative-sticky`: what moves is given up first, and given away a round later."""

from collections.abc import Mapping

from rota_sidecar.core.assignors.model import Group, Subscriber, Topic
from rota_sidecar.core.assignors.sticky import CooperativeSticky, Sticky
from tests.sidecar.core.assignors.groups import as_text, group, holding, member, settled, sizes_of
from tests.sidecar.core.assignors.test_sticky_cases import TORN

HERE, THERE = frozenset("a"), frozenset("b")


def given(members: Mapping[str, Subscriber], **sizes: int) -> dict[str, str]:
    return as_text(CooperativeSticky().assign(group(members, **sizes)))


GROWING = {
    "C0": member("t0 t1", "t0-0 t0-1", 1),
    "C1": member("t0 t1", "t1-0 t1-1", 1),
    "C2": member("t0 t1"),
}


def test_case_69_who_joins_waits_a_round() -> None:
    now = group(GROWING, t0=2, t1=2)
    first = CooperativeSticky().assign(now)
    assert as_text(first) == {"C0": "t0-0 t0-1", "C1": "t1-0", "C2": ""}
    second = CooperativeSticky().assign(holding(now, first, 2))
    assert as_text(second) == {"C0": "t0-0 t0-1", "C1": "t1-0", "C2": "t1-1"}


def test_case_70_what_a_member_had_that_left_is_given_at_once() -> None:
    members = {"C0": member("t0 t1", "t0-0 t0-1", 1), "C2": member("t0 t1", "t1-0", 1)}
    assert given(members, t0=2, t1=2) == {"C0": "t0-0 t0-1", "C2": "t1-0 t1-1"}


def test_case_71_what_is_disputed_is_held_back() -> None:
    now = group(TORN, t=3)
    first = CooperativeSticky().assign(now)
    assert as_text(first) == {"c1": "t-1", "c2": "t-2", "c3": ""}
    second = CooperativeSticky().assign(holding(now, first, 2))
    assert as_text(second) == {"c1": "t-1", "c2": "t-2", "c3": "t-0"}


def test_a_partition_of_a_topic_that_its_holder_takes_no_more_is_held_back() -> None:
    members = {"a": member("u", "t-0 u-0", 1), "b": member("t")}
    now = group(members, t=1, u=1)
    assert given(members, t=1, u=1) == {"a": "u-0", "b": ""}
    again = holding(now, CooperativeSticky().assign(now), 2)
    assert as_text(CooperativeSticky().assign(again)) == {"a": "u-0", "b": "t-0"}


def test_bug_4_what_two_claim_equally_is_held_back_though_subscriptions_differ() -> None:
    members = {"a": member("t1 t2", "t2-0", 1), "b": member("t2", "t2-0", 1)}
    assert given(members, t1=1, t2=1) == {"a": "t1-0", "b": ""}


def test_bug_5_an_older_claim_is_given_nothing_that_the_newer_one_still_has() -> None:
    members = {"a": member("t1 t2", "t2-0 t2-1 t2-2", 3), "b": member("t2", "t2-0 t2-1", 2)}
    assert given(members, t1=3, t2=3) == {"a": "t1-0 t1-1 t1-2", "b": ""}


def test_case_74_remote_partitions_are_exchanged_for_rack_local_ones() -> None:
    topics = {"t": Topic(4, (HERE, THERE, HERE, THERE))}
    members = {"c0": member("t", "t-0 t-1", 1, rack="a"), "c1": member("t", "t-2 t-3", 1, rack="b")}
    now = Group(members, topics)
    first = CooperativeSticky().assign(now)
    assert as_text(first) == {"c0": "t-0", "c1": "t-3"}
    second = CooperativeSticky().assign(holding(now, first, 2))
    assert as_text(second) == {"c0": "t-0 t-2", "c1": "t-1 t-3"}


def test_case_75_two_rounds_later_nothing_moves() -> None:
    last, rounds = settled(CooperativeSticky(), group(GROWING, t0=2, t1=2))
    assert rounds <= 2
    assert sorted(sizes_of({name: each.owned for name, each in last.members.items()})) == [1, 1, 2]


def test_case_76_the_eager_one_gives_everything_at_once() -> None:
    found = as_text(Sticky().assign(group(GROWING, t0=2, t1=2)))
    assert found == {"C0": "t0-0 t0-1", "C1": "t1-0", "C2": "t1-1"}
