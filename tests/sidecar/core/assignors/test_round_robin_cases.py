"""The numbered cases of `roundrobin`."""

from collections.abc import Mapping

from hypothesis import given, settings

from rota_sidecar.core.assignors.model import Group, Subscriber
from rota_sidecar.core.assignors.order import member_order
from rota_sidecar.core.assignors.round_robin import RoundRobin
from tests.sidecar.core.assignors.groups import Spread, as_text, everything, group, groups, member, spread

EXAMPLES = settings(max_examples=60, derandomize=True)
STAIRCASE = {"C0": member("t0"), "C1": member("t0 t1"), "C2": member("t0 t1 t2")}


def dealt(members: Mapping[str, Subscriber], **sizes: int) -> dict[str, str]:
    return as_text(RoundRobin().assign(group(members, **sizes)))


def one_by_one(of: Group) -> Spread:
    """The same, one partition after the other."""
    names, cursor = member_order(of.members), 0
    found: Spread = {name: set() for name in names}
    for partition in sorted(everything(of)):
        while partition[0] not in of.members[names[cursor % len(names)]].topics:
            cursor += 1
        found[names[cursor % len(names)]].add(partition)
        cursor += 1
    return found


def test_case_19_the_cursor_goes_on_in_the_next_topic() -> None:
    found = dealt({"C0": member("t0 t1"), "C1": member("t0 t1")}, t0=3, t1=3)
    assert found == {"C0": "t0-0 t0-2 t1-1", "C1": "t0-1 t1-0 t1-2"}


def test_case_20_who_does_not_take_a_topic_is_passed_by() -> None:
    found = dealt(STAIRCASE, t0=1, t1=2, t2=3)
    assert found == {"C0": "t0-0", "C1": "t1-0", "C2": "t1-1 t2-0 t2-1 t2-2"}


def test_case_21_the_first_of_them_leaves() -> None:
    members = {name: each for name, each in STAIRCASE.items() if name != "C0"}
    found = dealt(members, t0=1, t1=2, t2=3)
    assert found == {"C1": "t0-0 t1-1", "C2": "t1-0 t2-0 t2-1 t2-2"}


def test_case_22_two_members_split_every_topic() -> None:
    found = dealt(dict.fromkeys(("C0", "C2"), member("t0 t1 t2 t3")), t0=2, t1=2, t2=2, t3=2)
    assert found == {"C0": "t0-0 t1-0 t2-0 t3-0", "C2": "t0-1 t1-1 t2-1 t3-1"}


def test_case_25_static_members_come_first() -> None:
    members = {f"c{n}": member("t1 t2", instance=f"i{n}") for n in (1, 2, 3)}
    found = dealt({"c4": member("t1 t2"), **members}, t1=3, t2=3)
    assert found == {"c1": "t1-0 t2-1", "c2": "t1-1 t2-2", "c3": "t1-2", "c4": "t2-0"}


def test_case_27_a_topic_that_is_not_there_does_not_move_the_cursor() -> None:
    found = dealt(dict.fromkeys("ab", member("t0 t1 t2")), t0=1, t2=1)
    assert found == {"a": "t0-0", "b": "t2-0"}


@EXAMPLES
@given(groups())
def test_p1_p2_p3_p16_it_is_what_one_after_the_other_gives(of: Group) -> None:
    assert spread(RoundRobin().assign(of)) == one_by_one(of)


@EXAMPLES
@given(groups(equal=True))
def test_p4_with_equal_subscriptions_it_is_even(of: Group) -> None:
    sizes = sorted(map(len, spread(RoundRobin().assign(of)).values()))
    each, more = divmod(len(everything(of)), len(sizes))
    assert sizes == [each] * (len(sizes) - more) + [each + 1] * more


@EXAMPLES
@given(groups())
def test_p18_static_members_come_back_to_what_they_had(of: Group) -> None:
    before = {name: Subscriber(each.topics, instance_id=f"i-{name}") for name, each in of.members.items()}
    after = {f"z{26 - ord(name)}": each for name, each in before.items()}
    first = spread(RoundRobin().assign(Group(before, of.topics)))
    second = spread(RoundRobin().assign(Group(after, of.topics)))
    assert {before[name].instance_id: partitions for name, partitions in first.items()} == {
        after[name].instance_id: partitions for name, partitions in second.items()
    }
