"""The fixed groups on which assignors are measured, with published figures of other implementations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rota_sidecar.core.assignors.model import Topic

STEPS = ("full", "steady", "leave", "join")
RACKS = ("r0", "r1", "r2")
MULTIPLIER, INCREMENT, MASK = 6364136223846793005, 1442695040888963407, 2**64 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Topics, members and the subscriptions of the members."""

    name: str
    topics: int
    partitions: int
    members: int
    # Returns the indexes of a member's topics.
    takes: Callable[["Shape", int], Sequence[int]]
    racks: bool = False
    # Step -> published times of Kafka's Java client, of Kafka's coordinator and of a prototype with numpy, in ms.
    published: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.topics * self.partitions

    def smaller(self) -> "Shape":
        """Return the same shape with a tenth of the topics and members."""
        few = max(self.topics // 10, 5), max(self.members // 10, 10)
        return Shape(self.name, few[0], self.partitions, few[1], self.takes, self.racks)

    def described(self) -> str:
        return f"{self.name} {self.topics}x{self.partitions}, {self.members} members"

    def all_topics(self) -> Mapping[str, Topic]:
        """Return all topics, with replicas in two of three racks if the shape has racks."""
        made = {}
        for topic in range(self.topics):
            at = topic * self.partitions
            racks = [
                frozenset((RACKS[(at + i) % 3], RACKS[(at + i + 1) % 3])) for i in range(self.partitions)
            ]
            made[_topic(topic)] = Topic(self.partitions, racks if self.racks else ())
        return made

    def subscription(self, member: int) -> list[str]:
        return [_topic(number) for number in sorted(self.takes(self, member))]


def _topic(number: int) -> str:
    return f"topic-{number:04}"


def _everything(shape: Shape, _: int) -> Sequence[int]:
    return range(shape.topics)


def _one_odd(shape: Shape, member: int) -> Sequence[int]:
    return range(shape.topics) if member else range(1)


def _split(shape: Shape, member: int) -> Sequence[int]:
    """Subscribe a quarter of the members to a quarter of the topics, and the others to the rest."""
    quarter = shape.topics // 4
    return range(quarter) if member % 4 == 0 else range(quarter, shape.topics)


def _buckets(shape: Shape, member: int) -> Sequence[int]:
    return range(member % 5, shape.topics, 5)


def _staircase(shape: Shape, member: int) -> Sequence[int]:
    return range(member % shape.topics + 1)


def _random(count: int) -> Callable[[Shape, int], Sequence[int]]:
    """Subscribe each member to this many topics, chosen by a reproducible generator."""

    def takes(shape: Shape, member: int) -> Sequence[int]:
        state, found = member + 1, set[int]()
        while len(found) < min(count, shape.topics):
            state = (state * MULTIPLIER + INCREMENT) & MASK
            found.add((state >> 33) % shape.topics)
        return sorted(found)

    return takes


def _rows(client: str, coordinator: str, reference: str) -> Mapping[str, str]:
    columns = (client.split("|"), coordinator.split("|"), reference.split("|"))
    return {
        step: ", ".join(
            f"{who} {figure.strip()}"
            for who, figure in zip(("client", "coordinator", "prototype"), figures, strict=True)
            if figure.strip()
        )
        for step, figures in zip(STEPS, zip(*columns, strict=True), strict=True)
    }


UNIFORM = Shape(
    "everybody takes all",
    500,
    2000,
    2000,
    _everything,
    published=_rows("49 | 1101 | 1207 | 1289", "95 | 16 | 21 | 18", "2.4 | 2.0 | 2.9 | 8.2"),
)
RANDOM = Shape(
    "10 random topics each",
    100,
    1000,
    1000,
    _random(10),
    published=_rows(" | | |", "46 | | 14 | 15", "9.3 | | 1.9 | 2.7"),
)
RACKED = Shape(
    "two of three racks",
    50,
    2000,
    2000,
    _everything,
    racks=True,
    published=_rows("432 | 475 | |", " | | |", "10.5 | 2.5 | |"),
)
TWO_RACKED = Shape("two of three racks", 2, 2000, 2000, _everything, racks=True)
SHAPES = (
    UNIFORM,
    Shape(
        "one takes one topic",
        500,
        2000,
        2000,
        _one_odd,
        published=_rows("6619 | 9446 | 5070 | >450,000", "662 | 207 | 256 | 244", "66 | 3.0 | 8.8 | 13"),
    ),
    Shape(
        "a quarter, three quarters",
        500,
        200,
        1000,
        _split,
        published=_rows("71,122 | 21,936 | 43,544 |", "56 | 28 | 30 | 29", "3.6 | 0.3 | 0.8 | 1.2"),
    ),
    Shape(
        "five buckets",
        100,
        1000,
        1000,
        _buckets,
        published=_rows("2,329 | | 88 | >140,000", "25 | | 9 | 14", "2.7 | | 0.6 | 0.7"),
    ),
    RANDOM,
    Shape(
        "3 random topics each",
        100,
        1000,
        1000,
        _random(3),
        published=_rows(" | | |", "86 | | 17 | 21", "11 | | 5.3 | 4.8"),
    ),
    Shape(
        "staircase",
        100,
        1000,
        1000,
        _staircase,
        published=_rows("5,572 | | 112 |", "19 | | 8 |", "12 | | 1.7 |"),
    ),
    RACKED,
)
