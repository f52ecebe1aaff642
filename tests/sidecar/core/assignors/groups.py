"""Groups as short as the reference writes them, random ones, and what a plan amounts to."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import strategies as st

from rota_sidecar.core.assignors.model import Assignor, Group, Plan, Subscriber, Topic

Partition = tuple[str, int]
Spread = dict[str, set[Partition]]


def parsed(text: str) -> set[Partition]:
    """`t0-1 t1-0` as partitions; `t0-*` is written out by `everything`."""
    found = set()
    for word in text.split():
        topic, number = word.rsplit("-", 1)
        found.add((topic, int(number)))
    return found


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def member(
    topics: str, owned: str = "", generation: int = -1, instance: str | None = None, rack: str = ""
) -> Subscriber:
    """Return the subscription of a member, written as text."""
    return Subscriber(topics.split(), by_topic(parsed(owned)), generation, instance, rack)


def group(members: Mapping[str, Subscriber], **sizes: int) -> Group:
    return Group(members, {topic: Topic(partitions) for topic, partitions in sizes.items()})


def spread(plan: Plan) -> Spread:
    """Return the partitions of each member, and check that no member has one twice."""
    found = {}
    for name, lists in plan.items():
        partitions = [(topic, number) for topic, numbers in lists.items() for number in numbers]
        found[name] = set(partitions)
        assert len(partitions) == len(found[name]), f"{name} has a partition twice"
    return found


def as_text(plan: Plan) -> dict[str, str]:
    return {
        name: " ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
        for name, partitions in spread(plan).items()
    }


def sizes_of(plan: Plan) -> list[int]:
    return [len(partitions) for partitions in spread(plan).values()]


def holding(before: Group, plan: Plan, generation: int) -> Group:
    """Return the group in its next rebalance: each member owns what the plan gave it."""
    members = {
        name: replace(subscriber, owned=by_topic(spread({name: plan[name]})[name]), generation=generation)
        for name, subscriber in before.members.items()
    }
    return Group(members, before.topics)


def settled(assignor: Assignor, start: Group, rounds: int = 8) -> tuple[Group, int]:
    """Rebalance until no member's lists change; return the plan and the number of rebalances after the first."""
    now = holding(start, assignor.assign(start), 100)
    for number in range(rounds):
        plan = assignor.assign(now)
        if spread(plan) == spread({name: each.owned for name, each in now.members.items()}):
            return now, number
        now = holding(now, plan, 101 + number)
    raise AssertionError(f"still moving after {rounds} rounds")


def everything(of: Group) -> set[Partition]:
    """Every partition that has to be somewhere."""
    taken = {topic for subscriber in of.members.values() for topic in subscriber.topics}
    return {
        (name, number)
        for name, topic in of.topics.items()
        if name in taken
        for number in range(topic.partitions)
    }


TOPICS = ("t0", "t1", "t2", "t3")
MEMBERS = ("a", "b", "c", "d", "e", "f")


@st.composite
def topics(draw: st.DrawFn) -> dict[str, Topic]:
    sizes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=len(TOPICS)))
    return {name: Topic(size) for name, size in zip(TOPICS, sizes, strict=False)}


SUBSCRIPTION = st.lists(st.sampled_from((*TOPICS, "gone")), max_size=6)
CLAIM = st.tuples(st.sampled_from((*TOPICS, "gone")), st.integers(-1, 8))


@st.composite
def groups(draw: st.DrawFn, equal: bool = False) -> Group:
    """Members with claims of all sorts: disputed ones, old ones, repeated ones, and ones on what is not there."""
    names = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True))
    same = draw(SUBSCRIPTION)
    members = {}
    for name in names:
        owned: dict[str, list[int]] = {}
        for topic, number in draw(st.lists(CLAIM, max_size=12)):
            owned.setdefault(topic, []).append(number)
        taken = same if equal else draw(SUBSCRIPTION)
        members[name] = Subscriber(taken, owned, draw(st.integers(-1, 3)))
    return Group(members, draw(topics()))


@st.composite
def settled_groups(draw: st.DrawFn, assignor: Assignor, equal: bool = False) -> Group:
    """Groups that were left alone until nothing moved any more."""
    return settled(assignor, draw(groups(equal)))[0]
