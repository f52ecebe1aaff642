"""
How long a leader needs for a plan: from what members said to who gets what, and from their bytes to ours.

The claim: a leader in Python decides in less time than Kafka's Java client, and in tens of milliseconds where nothing
changes. The goal is 50 ms for a million partitions of two thousand members at rest. `core` is from subscriptions that
were read to a plan; `wire` from the bytes of all members to the bytes of all assignments. Java's figures stand beside
it as they were published for the same shapes (warm, without reading or writing bytes): they are from another run.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from benchmarks.peers import page
from benchmarks.peers.shapes import RACKS, RANDOM, SHAPES, STEPS, UNIFORM, Shape
from rota_sidecar.assignors.model import Assignor, Group, Plan, Subscriber, Topic
from rota_sidecar.assignors.range import Range
from rota_sidecar.assignors.round_robin import RoundRobin
from rota_sidecar.assignors.sticky import CooperativeSticky
from rota_sidecar.consumer_protocol.alike import Alike
from rota_sidecar.consumer_protocol.assignment import Assignment, encode_assignment
from rota_sidecar.consumer_protocol.offers import Offer, metadata_for, subscriber_of

REPEATS = 5
GENERATION = 3
STEADY_GOAL_MS = page.at_most(50)
WITHOUT_MEMORY: Mapping[str, tuple[Assignor, Mapping[Shape, str]]] = {
    "range": (
        Range(),
        {
            UNIFORM: "client 705, coordinator 98, prototype 2.0",
            RANDOM: "client 32, coordinator 2.5, prototype 8.6",
        },
    ),
    "roundrobin": (RoundRobin(), {UNIFORM: "client 588, prototype 4.3", RANDOM: "client 46, prototype 8.2"}),
}

Blobs = Mapping[str, bytes]


def median_ms(work: Callable[[], object]) -> float:
    """
    Of a few runs, with nothing left over from the one before.

    It is the time that this process had a core: a plan waits for nothing, and whatever else the machine does is not in it.
    """
    times = []
    for _ in range(REPEATS):
        gc.collect()
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * statistics.median(times)


def offers(shape: Shape, plan: Plan) -> dict[str, Offer]:
    """What the members say who have what a plan gave them."""
    racks = RACKS if shape.racks else ("",)
    names = [f"member-{number:05}" for number in range(shape.members)]
    return {
        name: Offer(
            shape.subscription(number),
            plan.get(name, {}),
            GENERATION if name in plan else -1,
            rack=racks[number % len(racks)],
        )
        for number, name in enumerate(names)
    }


def blobs(strategy: str, said: Mapping[str, Offer]) -> dict[str, bytes]:
    return {name: metadata_for(strategy, offer) for name, offer in said.items()}


def read(strategy: str, said: Blobs) -> dict[str, Subscriber]:
    alike = Alike()
    return {name: subscriber_of(strategy, metadata, None, alike) for name, metadata in said.items()}


def wire(assignor: Assignor, said: Blobs, topics: Mapping[str, Topic]) -> Sequence[bytes]:
    """The whole way of a leader."""
    plan = assignor.assign(Group(read(assignor.name, said), topics))
    heads: dict[str, bytes] = {}
    return [encode_assignment(Assignment(lists), heads) for lists in plan.values()]


def both_ways(assignor: Assignor, said: Blobs, topics: Mapping[str, Topic]) -> tuple[float, float]:
    group = Group(read(assignor.name, said), topics)
    return median_ms(lambda: assignor.assign(group)), median_ms(lambda: wire(assignor, said, topics))


def steps(assignor: Assignor, shape: Shape, topics: Mapping[str, Topic]) -> Mapping[str, Blobs]:
    """What members say when nobody has anything, at rest, when one has left, and when one has come."""
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


def line(what: str, ms: float, published: str, goal: page.Goal | None = None) -> page.Line:
    beside = f"published, ms: {published}" if published else ""
    return page.Line(what, f"{ms:,.1f} ms", beside, goal=page.judged(goal, ms) if goal else "")


def sticky_lines(shape: Shape) -> Sequence[page.Line]:
    assignor, topics, lines = CooperativeSticky(), shape.all_topics(), []
    for step, said in steps(assignor, shape, topics).items():
        core, whole = both_ways(assignor, said, topics)
        goal = STEADY_GOAL_MS if step == "steady" and shape is UNIFORM else None
        lines.append(line(f"{shape.described()}: {step}, core", core, shape.published.get(step, ""), goal))
        lines.append(line(f"{shape.described()}: {step}, wire", whole, ""))
    return lines


def other_lines(name: str, shape: Shape, published: str) -> Sequence[page.Line]:
    assignor, topics = WITHOUT_MEMORY[name][0], shape.all_topics()
    core, whole = both_ways(assignor, blobs(name, offers(shape, {})), topics)
    return [
        line(f"{name}, {shape.described()}: core", core, published),
        line(f"{name}, {shape.described()}: wire", whole, ""),
    ]


def main() -> None:
    """Print the table."""
    explanation = (
        f"a leader's work, time on a core; medians of {REPEATS}; cooperative-sticky where no other strategy is named; beside it what was "
        "published for such shapes, from another run on another day: Kafka's Java client, Kafka's coordinator, and a "
        "prototype with numpy on arrays"
    )
    result = page.Page("assignors", explanation, quick="with a tenth of the topics and of the members")
    lines: list[page.Line] = []
    for shape in SHAPES:
        lines += sticky_lines(shape.smaller() if result.quick else shape)
    for name, (_, published) in WITHOUT_MEMORY.items():
        for shape, figures in published.items():
            lines += other_lines(
                name, shape.smaller() if result.quick else shape, "" if result.quick else figures
            )
    result.show(lines)


if __name__ == "__main__":
    main()
