"""Brings the world of tests to rest: application, member and backend do what is expected of them."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition
from tests.sidecar.core.delivery.log import HeldRecords
from tests.sidecar.core.delivery.world import PARTITIONS, World


def come_to_rest(world: World) -> None:
    """Bring the world to rest; then everything is done, committed and answered."""
    world.undrain()
    world.configure(suspended=False, rate_max=0)
    world.attach(commits_itself=False)
    for _ in range(3_000):
        if _is_at_rest(world):
            return
        world.assign(frozenset(PARTITIONS))
        for partition in world.delivery.paused:
            world.pause(partition, paused=False)
        while world.to_acknowledge:
            world.acknowledge()
        for _ in range(len(world.calls)):
            world.answer(0)
        world.give_credit(max(100 - world.credit, 0))
        while any(records.offsets for records in (world.records | world.late).values()):
            world.judge(0, Verdict.ACK, 100)
        _skip_what_stands_still(world)
        world.pass_time(1_000)
    raise AssertionError(f"it does not come to rest: {world.delivery.partitions}")


def _is_at_rest(world: World) -> bool:
    if len(world.held) < len(PARTITIONS) or world.asked.keys() - world.answered:
        return False
    if any(isinstance(call, do.Commit) for call in world.calls):
        return False
    return world.commits_itself or all(
        log.first_undone == log.end and log.stored.offset == log.end for log in world.logs.values()
    )


def _skip_what_stands_still(world: World) -> None:
    for partition, view in world.delivery.partitions.items():
        if view.stopped and partition in world.delivery_epochs:
            _skip_first(world, partition, world.delivery_epochs[partition])


def _skip_first(world: World, partition: Partition, delivery_epoch: int) -> None:
    """The application decides about the record for which it stands still."""
    log = world.logs[partition]
    in_flight = world.records.get(delivery_epoch, HeldRecords(partition)).offsets
    for offset in range(log.end):
        if offset in log.done or offset in in_flight:
            continue
        log.done.add(offset)
        judgement = on.Judgement(delivery_epoch, partition, offset, offset, Verdict.SKIP)
        if any(isinstance(each, do.Settled) for each in world.delivery_of(judgement)):
            return
        log.done.discard(offset)
