"""Topics whose replicas lie in racks."""

from collections import defaultdict
from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from rota_sidecar.core.assignors.model import Group, Plan, Subscriber, Topic
from rota_sidecar.core.assignors.racks import is_rack_local, racks_of
from tests.sidecar.core.assignors.groups import member, spread

RACKS = ("a", "b", "c")


def spread_over(brokers: int, replicas: int, **sizes: int) -> dict[str, Topic]:
    """Replica j of the i-th partition of all is on broker i + j; the brokers are in racks a, b, c and so on."""
    topics, at = {}, 0
    for name, size in (sizes or {"t1": 6, "t2": 7, "t3": 2}).items():
        racks = [frozenset("abcdef"[(at + i + j) % brokers] for j in range(replicas)) for i in range(size)]
        topics[name] = Topic(size, racks)
        at += size
    return topics


def far_from(group: Group, plan: Plan) -> int:
    """Return the number of partitions whose owners are in other racks."""
    return sum(
        not is_rack_local(rack, racks_of(group.topics[topic])[number])
        for name, partitions in spread(plan).items()
        for rack in [group.members[name].rack]
        for topic, number in partitions
    )


@st.composite
def with_racks(draw: st.DrawFn, groups: st.SearchStrategy[Group]) -> Group:
    """A group some of whose members and partitions have racks; not all of the latter are known."""
    group = draw(groups)
    rack = st.sampled_from(("", *RACKS))
    members = {name: replace(member, rack=draw(rack)) for name, member in group.members.items()}
    kinds = st.sampled_from([frozenset(), *map(frozenset, ("a", "b", "c", "ab", "bc"))])
    topics = {
        name: Topic(topic.partitions, draw(st.lists(kinds, max_size=topic.partitions)))
        for name, topic in group.topics.items()
    }
    return Group(members, topics)


def in_racks(**topics: str) -> dict[str, Topic]:
    """`t="ab,c"` is a topic with two partitions: one with replicas in the racks a and b, one in c."""
    return {
        name: Topic(len(racks.split(",")), list(map(frozenset, racks.split(","))))
        for name, racks in topics.items()
    }


# Groups, and how many partitions must be far in plans that are as even as ours.
NAMED = [
    (
        Group(
            {"m1": member("t8 t2", rack="a"), "m2": member("t2", rack="b"), "m3": member("t8", rack="a")},
            in_racks(t8="a,a,a,a,b,a", t2="a,b,a,b,a"),
        ),
        2,
    ),
    (Group({"m1": member("t", rack="a"), "m2": member("t")}, in_racks(t="bc,ab,bc")), 0),
    (
        Group({"m1": member("t13 t8", rack="a"), "m2": member("t12 t8")}, in_racks(t12="b", t13="a", t8="b")),
        0,
    ),
    (
        Group(
            {
                "m0": member("t9 t7", rack="a"),
                "m1": member("t9 t7", "t7-1 t9-0", 1, rack="b"),
                "m2": member("t9 t7"),
            },
            in_racks(t9="b", t7="d,d,a"),
        ),
        0,
    ),
    (Group({"m1": member("t", "t-0", 1, rack="d"), "m2": member("t", rack="a")}, in_racks(t="ad,cd")), 0),
]


def random_racks(chance: Random, members: int = 6, topics: int = 4, partitions: int = 9) -> Group:
    """A group with racks, in which most claims are from several generations, disputed, or on what one does not take."""
    described = {}
    for number in range(chance.randint(1, topics)):
        size, replicas = chance.randint(1, partitions), chance.choice((1, 1, 2))
        described[f"t{number}"] = Topic(
            size, [frozenset(chance.sample("abcd", replicas)) for _ in range(size)]
        )
    ids = [f"m{number}" for number in range(chance.randint(1, members))]
    owned: dict[str, dict[str, list[int]]] = {name: defaultdict(list) for name in ids}
    for topic, each in described.items():
        for number in range(each.partitions):
            for name in {chance.choice(ids) for _ in range(chance.choice((0, 0, 1, 1, 1, 2)))}:
                owned[name][topic].append(number)
    found = {}
    for name in ids:
        taken = chance.sample(sorted(described), chance.randint(1, len(described)))
        rack = chance.choice(("", "a", "b", "c", "d"))
        found[name] = Subscriber(taken, owned[name], chance.randint(1, 2), rack=rack)
    return Group(found, described)
