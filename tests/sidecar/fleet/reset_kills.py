"""Resets during which operator and sidecars are killed and partitions move: the offsets are those of the plan, and all members resume."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.operator.cluster.reset_world import Killed
from tests.sidecar.fleet.reset_story import KEY, PODS, TERMINAL, Operator, operated

# Of one reset: its plan, the plan that undoes it, and the record of five phases.
WRITES = 7
PHASES = ("Suspending", "Committing", "Verifying", "Resuming")
# Of `make test`; a round of the soak has a reset for each write of the operator, and for each side of it.
RESETS = 4
# Of all resets of a round.
WITHIN_S = 500


class Disturbance(NamedTuple):
    """Disturbs one reset: a kill of the operator at one of its writes, and a fate of a sidecar once a phase is written."""

    write: int
    is_after: bool
    phase: str
    pod: str
    # SIGKILL, else SIGTERM: then its partitions move to the other one, and back.
    is_kill: bool


def drawn(seed: int, *, in_soak: bool) -> list[Disturbance]:
    """Draw disturbances; those of `make test` have each phase once."""
    random = Random(seed)
    kills = list(product(range(1, WRITES + 1), (False, True)))
    random.shuffle(kills)
    phases = [PHASES[number % len(PHASES)] for number in range(len(kills))]
    found = [
        Disturbance(write, is_after, phase, random.choice(PODS), random.random() < 0.5)
        for (write, is_after), phase in zip(kills, phases, strict=True)
    ]
    return found if in_soak else found[:RESETS]


def count(disturbances: list[Disturbance]) -> Mapping[str, int]:
    """Return the sums that a soak records."""
    killed = sum(each.is_kill for each in disturbances)
    return {
        "kills of the operator": len(disturbances),
        "kills of sidecars": killed,
        "replaced sidecars": len(disturbances) - killed,
    }


def play(
    folder: Path,
    servers: str,
    topic: str,
    records: int,
    committed: Callable[[], Mapping[int, int]],
    disturbances: list[Disturbance],
) -> None:
    """Reset two partitions of so many records, once for each disturbance; `committed` asks the engine."""

    async def story() -> None:
        async with operated(folder, servers, topic, WITHIN_S) as operator:
            before = 0
            for number, disturbance in enumerate(disturbances):
                offset = (number * 3 + 1) % records
                await disturbed(operator, f"replay-{number}", offset, disturbance)
                assert await asyncio.to_thread(committed) == dict.fromkeys(range(2), offset), disturbance
                undo = operator.plan(operator.record["undoConfigMap"])
                assert undo == dict.fromkeys(range(2), (str(offset), str(before))), disturbance
                before = offset
                await operator.until_owned()
                await operator.until_resumed()
            executed = [each["requestId"] for each in operator.record["executed"]]
            assert executed == [f"replay-{number}" for number in range(len(disturbances))]
            # An old manifest comes back.
            operator.request("replay-0", dry_run=False, offset=0)
            await operator.resets.step(KEY)
            assert await asyncio.to_thread(committed) == dict.fromkeys(range(2), before)

    asyncio.run(story())


async def disturbed(operator: Operator, request_id: str, offset: int, disturbance: Disturbance) -> None:
    """Execute a reset under a disturbance."""
    kills = operator.kills
    kills.at, kills.is_after, kills.count = disturbance.write, disturbance.is_after, 0
    operator.request(request_id, dry_run=False, offset=offset)
    is_due = True
    while operator.record.get("requestId") != request_id or operator.record["phase"] not in TERMINAL:
        try:
            await operator.step()
        except Killed:
            kills.at = -1
            operator.begin_life()
            operator.reconcile()
        record = operator.record
        if is_due and (record.get("requestId"), record.get("phase")) == (request_id, disturbance.phase):
            is_due = False
            await replace_sidecar(operator, disturbance)
    assert operator.record["phase"] == "Completed", operator.record
    assert not is_due, disturbance
    assert kills.at == -1, disturbance


async def replace_sidecar(operator: Operator, disturbance: Disturbance) -> None:
    """End a sidecar, and start it again."""
    sidecar = operator.sidecars[disturbance.pod]
    if disturbance.is_kill:
        await asyncio.to_thread(sidecar.kill)
    else:
        await asyncio.to_thread(sidecar.terminate)
    await asyncio.to_thread(sidecar.start)
