"""In every order of events nothing is lost, nothing is committed too early, and each request is answered."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import CommitMode, DeliveryConfig, Reset
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Backoff, Rules, Verdict
from rota_sidecar.core.member.partitions import Partition
from tests.sidecar.core.delivery.resting import come_to_rest
from tests.sidecar.core.delivery.world import ERRORS, PARTITIONS, World

Do = Callable[[World, int, int], None]
CONFIGS = some.builds(
    lambda ordering, many, in_flight, dead_letters, mode, lanes, rate: DeliveryConfig(
        "orders-group",
        Rules(ordering, many, in_flight, retries=2, backoff=Backoff.CONSTANT, backoff_ms=1_000),
        concurrency=lanes,
        processing_timeout_ms=30_000,
        commit_mode=mode,
        commit_interval_ms=2_000,
        initial_offset=Reset.EARLIEST,
        on_offset_expired=Reset.EARLIEST,
        dead_letter_topic="orders.dlq" if dead_letters else "",
        rate_max=rate,
        ahead_bytes_max=200,
        ahead_bytes_total_max=400,
    ),
    some.sampled_from(Ordering),
    some.booleans(),
    some.sampled_from([1, 4, 100]),
    some.booleans(),
    some.sampled_from([CommitMode.PERIODIC, CommitMode.PERIODIC, CommitMode.SYNC]),
    some.sampled_from([1, 3, 64]),
    some.sampled_from([0, 0, 20]),
)


def chosen(number: int) -> frozenset[Partition]:
    """Some of the partitions."""
    return frozenset(each for each in PARTITIONS if (number >> each.number) & 1)


def partition_state(number: int) -> Partition:
    return PARTITIONS[number % len(PARTITIONS)]


def produce(world: World, a: int, b: int) -> None:
    world.logs[partition_state(a)].end += b % 5


def hand_over(world: World, a: int, _: int) -> None:
    world.step(on.HandOver(a % 2 == 0))


EVENTS: dict[str, Do] = {
    "assign": lambda world, a, _: world.assign(chosen(a)),
    "revoke": lambda world, a, _: world.revoke(chosen(a)),
    "lose": lambda world, *_: world.lose(),
    "answer": lambda world, a, _: world.answer(a),
    "fail": lambda world, a, b: world.answer(a, ERRORS[b % len(ERRORS)]),
    "produce": produce,
    "trim": lambda world, a, b: world.trim(partition_state(a), b),
    "attach": lambda world, a, _: world.attach(commits_itself=a % 4 == 0),
    "crash": lambda world, *_: world.detach(clean=False),
    "goodbye": lambda world, *_: world.detach(clean=True),
    "credit": lambda world, a, _: world.give_credit(a),
    "acknowledge": lambda world, *_: world.acknowledge(),
    "done": lambda world, a, b: world.judge(a, Verdict.ACK, b),
    "retry": lambda world, a, _: world.judge(a, Verdict.RETRY),
    "dead letter": lambda world, a, _: world.judge(a, Verdict.DEAD_LETTER),
    "skip": lambda world, a, _: world.judge(a, Verdict.SKIP),
    "commit": lambda world, a, _: world.commit_asked(partition_state(a), None),
    "commit at": lambda world, a, b: world.commit_asked(partition_state(a), b),
    "seek": lambda world, a, b: world.seek(partition_state(a), b),
    "reset": lambda world, a, b: world.reset(partition_state(a), b),
    "pause": lambda world, a, _: world.pause(partition_state(a), paused=True),
    "resume": lambda world, a, _: world.pause(partition_state(a), paused=False),
    "time": lambda world, a, b: world.pass_time(100 * a * b),
    "drain": lambda world, a, _: world.drain(a),
    "hand over": hand_over,
    "undrain": lambda world, *_: world.undrain(),
    "suspend": lambda world, a, _: world.configure(suspended=a % 3 == 0),
    "settings": lambda world, a, _: world.configure(dead_letter_topic="orders.dlq" if a % 2 else ""),
}
OFTEN = [
    *["answer"] * 24,
    *["acknowledge", "credit", "done"] * 12,
    *["assign", "attach", "produce", "time"] * 5,
    *["dead letter", "retry"] * 4,
]
STEPS = some.lists(
    some.tuples(some.sampled_from(OFTEN + sorted(EVENTS)), some.integers(0, 20), some.integers(0, 20)),
    max_size=120,
)


@settings(max_examples=200)
@given(CONFIGS, STEPS)
def test_nothing_is_lost_or_committed_too_early_and_everything_comes_to_an_end(
    config: DeliveryConfig, steps: list[tuple[str, int, int]]
) -> None:
    world = World(config)
    for what, a, b in steps:
        EVENTS[what](world, a, b)
    come_to_rest(world)


def drawn(chance: Random) -> DeliveryConfig:
    """Settings for one long play."""
    rules = Rules(
        chance.choice(list(Ordering)),
        chance.random() < 0.7,
        chance.choice([1, 4, 100]),
        retries=2,
        backoff=Backoff.CONSTANT,
        backoff_ms=1_000,
    )
    return DeliveryConfig(
        "orders-group",
        rules,
        concurrency=chance.choice([1, 3, 64]),
        processing_timeout_ms=30_000,
        commit_mode=chance.choice([CommitMode.PERIODIC, CommitMode.SYNC]),
        commit_interval_ms=2_000,
        on_offset_expired=Reset.EARLIEST,
        dead_letter_topic=chance.choice(["", "orders.dlq"]),
        rate_max=chance.choice([0, 0, 20]),
        ahead_bytes_max=200,
        ahead_bytes_total_max=400,
    )


@pytest.mark.parametrize("seed", range(0, 300, 50))
def test_the_same_holds_in_long_plays(seed: int) -> None:
    for each in range(seed, seed + 50):
        chance = Random(each)
        world = World(drawn(chance))
        for _ in range(200):
            EVENTS[chance.choice(OFTEN + sorted(EVENTS))](world, chance.randrange(21), chance.randrange(21))
        come_to_rest(world)
