"""
Measure the time in which a leader computes a plan, from subscriptions to assignments, decoded and as bytes.

The claim: a leader in Python takes no more time than Kafka's Java client, and tens of milliseconds if nothing changes.
The goal is 50 ms for a million partitions of two thousand members at rest. `core` measures from decoded subscriptions
to a plan without member lists; `opened` to the lists of all members; `wire` from encoded subscriptions to encoded
assignments. `opened` and `wire` are compared with Kafka's Java classes, warm, in the same run on the same groups;
`core` is compared with figures that were published for the same shapes.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.peers import page
from benchmarks.peers.java_assignors import JavaAssignors, java_assignors
from benchmarks.peers.shapes import RACKED, RACKS, RANDOM, SHAPES, STEPS, TWO_RACKED, UNIFORM, Shape
from rota_sidecar.core.assignors.model import Assignor, Group, Plan, Subscriber, Topic
from rota_sidecar.core.assignors.range import Range
from rota_sidecar.core.assignors.round_robin import RoundRobin
from rota_sidecar.core.assignors.sticky import CooperativeSticky
from rota_sidecar.core.consumer_protocol.assignment import Assignment, encode_assignment
from rota_sidecar.core.consumer_protocol.offers import JoinOffer, metadata_for, subscriber_of
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts
from rota_sidecar.core.consumer_protocol.wire import TopicHeaders

REPEATS = 5
# With owned partitions, Java takes seconds from bytes to bytes: one warm run is enough.
JAVA_RUNS, JAVA_SLOW_RUNS = 5, 1
HEAP = "6g"
GENERATION = 3
STEADY_GOAL_MS = page.at_most(50)
JAVA_GOAL = page.at_most(1)
# Kafka's sticky classes take minutes for other shapes.
BESIDE_JAVA = (UNIFORM, RACKED)
WITHOUT_MEMORY: Mapping[str, tuple[Assignor, Mapping[Shape, str]]] = {
    "range": (
        Range(),
        {
            UNIFORM: "client 705, coordinator 98, prototype 2.0",
            RANDOM: "client 32, coordinator 2.5, prototype 8.6",
            TWO_RACKED: "",
        },
    ),
    "roundrobin": (RoundRobin(), {UNIFORM: "client 588, prototype 4.3", RANDOM: "client 46, prototype 8.2"}),
}

Blobs = Mapping[str, bytes]


def median_ms(work: Callable[[], object]) -> float:
    """

    Return the median CPU time of a few runs, in ms; each run starts after a garbage collection.
    CPU time excludes the load of other processes, and a plan never waits.
    """
    times = []
    for _ in range(REPEATS):
        gc.collect()
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * statistics.median(times)


def offers(shape: Shape, plan: Plan) -> dict[str, JoinOffer]:
    """Return the join offers of members that own what the plan assigned to them."""
    racks = RACKS if shape.racks else ("",)
    names = [f"member-{number:05}" for number in range(shape.members)]
    return {
        name: JoinOffer(
            shape.subscription(number),
            plan.get(name, {}),
            GENERATION if name in plan else -1,
            rack=racks[number % len(racks)],
        )
        for number, name in enumerate(names)
    }


def blobs(strategy: str, said: Mapping[str, JoinOffer]) -> dict[str, bytes]:
    return {name: metadata_for(strategy, offer) for name, offer in said.items()}


def read(strategy: str, said: Blobs) -> dict[str, Subscriber]:
    shared = SharedLayouts()
    return {name: subscriber_of(strategy, metadata, None, shared) for name, metadata in said.items()}


def wire(assignor: Assignor, said: Blobs, topics: Mapping[str, Topic]) -> Sequence[bytes]:
    """Run all work of a leader, from encoded subscriptions to encoded assignments."""
    plan = assignor.assign(Group(read(assignor.name, said), topics))
    heads = TopicHeaders()
    return [encode_assignment(Assignment(lists), heads) for lists in plan.values()]


def opened(assignor: Assignor, group: Group) -> Sequence[Mapping[str, Sequence[int]]]:
    """Compute the finished lists of all members, the result of Java's assignors."""
    return [dict(lists.items()) for lists in assignor.assign(group).values()]


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured group: its name, its encoded subscriptions and the published figures."""

    what: str
    assignor: Assignor
    said: Blobs
    topics: Mapping[str, Topic]
    published: str = ""
    goal: page.Goal | None = None

    def lines(self, java: JavaAssignors | None) -> Sequence[page.Line]:
        """Return the lines of `core`, `opened` and `wire`, compared with Java if given."""
        name, group = self.assignor.name, Group(read(self.assignor.name, self.said), self.topics)
        core = median_ms(lambda: self.assignor.assign(group))
        lists = median_ms(lambda: opened(self.assignor, group))
        whole = median_ms(lambda: wire(self.assignor, self.said, self.topics))
        published = f"published, ms: {self.published}" if self.published else ""
        goal = page.judged(self.goal, core) if self.goal else ""
        fresh = not any(each.owned for each in group.members.values())
        runs = JAVA_RUNS if fresh else JAVA_SLOW_RUNS
        return [
            page.Line(f"{self.what}, core", f"{core:,.1f} ms", published, goal=goal),
            beside(f"{self.what}, opened", lists, java.opened_ms(name, group, JAVA_RUNS) if java else None),
            beside(f"{self.what}, wire", whole, java.wire_ms(name, group, runs) if java else None),
        ]


def beside(what: str, ours: float, theirs: float | None) -> page.Line:
    if theirs is None:
        return page.Line(what, f"{ours:,.1f} ms")
    ratio = ours / theirs
    return page.Line(what, f"{ours:,.1f} ms", f"Java {theirs:,.1f} ms", ratio, page.judged(JAVA_GOAL, ratio))


def steps(assignor: Assignor, shape: Shape, topics: Mapping[str, Topic]) -> Mapping[str, Blobs]:
    """Return subscriptions of a new group, of one at rest, after a member left, and after a member joined."""
    fresh = offers(shape, {})
    now = blobs(assignor.name, fresh)
    full = now
    for _ in range(4):
        plan = assignor.assign(Group(read(assignor.name, now), topics))
        now = blobs(assignor.name, offers(shape, plan))
    leaver = sorted(now)[shape.members // 2]
    left = {name: metadata for name, metadata in now.items() if name != leaver}
    newcomer = {"member-x": metadata_for(assignor.name, replace(fresh[leaver], generation=-1))}
    return dict(zip(STEPS, (full, now, left, {**now, **newcomer}), strict=True))


def measured(shapes: Callable[[Shape], Shape]) -> Iterator[tuple[Measured, bool]]:
    """Yield all groups, each with True if Java is measured on it too."""
    for shape in SHAPES:
        assignor, topics, smaller = CooperativeSticky(), shapes(shape).all_topics(), shapes(shape)
        for step, said in steps(assignor, smaller, topics).items():
            goal = STEADY_GOAL_MS if step == "steady" and smaller is UNIFORM else None
            what, published = f"{smaller.described()}: {step}", smaller.published.get(step, "")
            yield Measured(what, assignor, said, topics, published, goal), shape in BESIDE_JAVA
    for name, (without_memory, published_by_shape) in WITHOUT_MEMORY.items():
        for shape, published in published_by_shape.items():
            smaller = shapes(shape)
            said, topics = blobs(name, offers(smaller, {})), smaller.all_topics()
            known = published if smaller is shape else ""
            yield Measured(f"{name}, {smaller.described()}", without_memory, said, topics, known), True


def main() -> None:
    """Run the benchmark and print its table."""
    explanation = (
        f"a leader's work, CPU time; medians of {REPEATS}; cooperative-sticky where no other strategy is named; beside finished "
        "lists and bytes Kafka's Java classes in the same run (the time of all threads of a warm JVM); beside plans "
        "what was published for such shapes on another day: Kafka's Java client, Kafka's coordinator, and a prototype "
        "with numpy on arrays"
    )
    result = page.Page("assignors", explanation, quick="with a tenth of the topics and of the members")
    lines: list[page.Line] = []
    with java_assignors(HEAP) as java:
        for each, with_java in measured(Shape.smaller if result.quick else lambda shape: shape):
            lines += each.lines(java if with_java else None)
    result.show(lines)


if __name__ == "__main__":
    main()
