"""
Parameters that a seed draws. Each kind of fault is omitted in a part of the seeds, so that its absence is tested too.
"""

import random
from dataclasses import dataclass

from rota_sidecar.core.ledger.batches import Ordering
from tests.simulation.strategies import OFFERED

SESSION_MS = 3_000
SESSION_S = SESSION_MS / 1000
# The first two share a slot: what happens to one must not be seen in the other. The third may be served elsewhere.
GROUPS = ("simulated-65", "simulated-124", "simulated-19")
# The table has so few slots that they move often; all groups above belong to one of them.
SLOTS_USED = 4
LEASE_S = 2.0
# Every third slow write takes longer, and so do writes that wait behind them.
COMMIT_TIMEOUT_MS = 1_000
# A copy of a request arrives at most so much later.
LATE_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One seed's share of what can happen."""

    steps: int
    hosts: int
    groups: tuple[str, ...]
    members: int  # of all groups together
    statics: int
    partitions: int  # of each group
    # The network: rates are for each message.
    delay_s: float
    reset_rate: float
    loss_rate: float
    copy_rate: float
    reorder_rate: float
    delay_rate: float
    # The store.
    latency_s: float
    error_rate: float
    slow_rate: float
    compact_above: int
    compact_running_above: int
    # The coordinator.
    coalesce_ms: int
    initial_delay_ms: int
    members_max: int
    retention_ms: int
    turns_to_live: int  # between two crashes, on average; 0 = for ever
    crash_rate: float  # while something is written
    # What the nemesis does, and how long it waits in between.
    acts: tuple[str, ...]
    calm_s: float
    # How often a member commits for a partition that it lost.
    late_verdict_rate: float
    # How often an application does not let go when it is asked to.
    hang_rate: float
    # What members offer.
    strategies: tuple[str, ...]
    strangers: bool

    @classmethod
    def draw(cls, chance: random.Random, steps: int) -> "Plan":
        def sometimes(rate: float) -> float:
            return chance.choice([0, rate / 3, rate, rate])

        groups = GROUPS[: chance.choice([1, 1, 2, 3])]
        members = chance.randint(len(groups), 7)
        return cls(
            steps=steps,
            hosts=chance.choice([1, 1, 1, 2, 3]),
            groups=groups,
            members=members,
            statics=chance.randint(0, members) if chance.random() < 0.5 else 0,
            partitions=chance.randint(1, 6),
            delay_s=chance.choice([0.001, 0.02, 0.1, 0.1]),
            reset_rate=sometimes(0.02),
            loss_rate=sometimes(0.02),
            copy_rate=sometimes(0.04),
            reorder_rate=sometimes(0.3),
            delay_rate=sometimes(0.01),
            latency_s=chance.choice([0.0005, 0.01, 0.1]),
            error_rate=sometimes(0.09),
            slow_rate=sometimes(0.05),
            compact_above=chance.choice([0, 0, 200]),
            # Only who coalesces has suspects to save.
            coalesce_ms=chance.choice([0, 250, 2_000, 2_000, 2_000, 4_000, 4_000, 4_000, 4_000]),
            initial_delay_ms=chance.choice([0, 500]),
            members_max=chance.choice([2**31 - 1, 2**31 - 1, members - 1 or 1]),
            retention_ms=chance.choice([8_000, 10**9]),
            turns_to_live=chance.choice([0, 200, 600]),
            crash_rate=sometimes(0.08),
            acts=tuple(act for act in ACTS if chance.random() < 0.7),
            calm_s=chance.choice([0.5, 1, 2]),
            late_verdict_rate=sometimes(0.9),
            hang_rate=chance.choice([0.3, 0.9, 0.9, 0.9]),
            strategies=chance.choice(OFFERED),
            strangers=chance.random() < 0.4,
            compact_running_above=chance.choice([0, 0, 50, 10_000]),
        )


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """One seed's share of what can happen to deliveries."""

    ordering: Ordering
    takes_many: bool
    sync: bool
    concurrency: int
    work_s: float
    processing_timeout_s: float
    crash_every_s: float
    hang_rate: float
    lie_rate: float
    dead_letter_error_rate: float

    @classmethod
    def draw(cls, chance: random.Random) -> "DeliveryPlan":
        concurrency = chance.choice([1, 4, 64])
        return cls(
            ordering=chance.choice(list(Ordering)),
            takes_many=chance.random() < 0.7,
            sync=chance.random() < 0.4,
            concurrency=concurrency,
            # One member alone must come round to each partition within moments, whatever waits there.
            work_s=min(chance.choice([0.005, 0.05, 0.2]), concurrency * 0.005),
            processing_timeout_s=chance.choice([3.0, 6.0]),
            crash_every_s=chance.choice([0, 5, 15]),
            hang_rate=chance.choice([0.004, 0.008, 0.016]),
            lie_rate=chance.choice([0, 0.02]),
            dead_letter_error_rate=chance.choice([0, 0.3]),
        )


ACTS = (
    "pause a member",
    "kill a member",
    "leave",
    "pause the coordinator",
    "cut",
    "rejoin",
    "double",
    "all leave",
    "cut off a coordinator's store",
    "stop a coordinator",
)
