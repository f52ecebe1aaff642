"""Topics whose replicas lie in racks."""

from dataclasses import replace

from hypothesis import strategies as st

from rota_sidecar.assignors.model import Group, Plan, Topic
from rota_sidecar.assignors.near import is_near, racks_of
from tests.sidecar.assignors.groups import spread

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
    """How many partitions are with members in other racks."""
    return sum(
        not is_near(rack, racks_of(group.topics[topic])[number])
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
