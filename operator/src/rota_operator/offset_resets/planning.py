"""Makes the plan of a reset, or reads that of its dry run, and writes it. Called by the shells for the first task of a reset."""

import asyncio

from rota_operator.offset_resets.group import ResetGroup
from rota_operator.offset_resets.sources import OffsetSource, look_up, topics_in, with_times
from rota_operator.offset_resets.targets import target_of
from rota_operator.resets.documents import plan_name
from rota_operator.resets.machine import Planned, Prepared, Summary, dry_run_of
from rota_operator.resets.plan import Plan, ResetRefused
from rota_operator.resets.targets import Lookup, Target, ToTime, current_offsets, resolve
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.offsets import Reset
from rota_operator.spec.status import OffsetReset

EXTERNAL = (
    "spec.offsets.commit.mode is external: the application's store has the offsets, and the group's follow it; reset the "
    "position in the store"
)
TRANSACTIONAL = (
    "spec.offsets.commit.mode is transactional: the application commits the offsets in its transactions; scale the workload to "
    "0 and use `rota groups reset`"
)


async def begin(
    group: ResetGroup, record: OffsetReset | None, reset: Reset, now_ms: int
) -> Planned | Prepared:
    """Make or read the plan of a reset, and write it. Raises ResetRefused, Unavailable."""
    name = plan_name(group.name, reset.request_id)
    async with group.source() as source:
        dry_run = None if reset.dry_run else dry_run_of(record, reset.request_id)
        if dry_run is not None:
            plan = await group.read_plan(name, dry_run.plan_hash)
            lookup = await look_up(source, group.group_id, topics_in(plan))
            await asyncio.to_thread(current_offsets, plan, lookup)
        else:
            plan = await _make_plan(group, source, reset, now_ms)
            await group.write_plan(name, plan)
    return (
        Planned(reset, summary_of(name, plan)) if reset.dry_run else Prepared(reset, summary_of(name, plan))
    )


def summary_of(name: str, plan: Plan) -> Summary:
    """Return the summary of a plan that is written under this name."""
    return Summary(name, plan.hash, len(plan.rows), plan.skipped, plan.repeated)


async def _make_plan(group: ResetGroup, source: OffsetSource, reset: Reset, now_ms: int) -> Plan:
    other = reset.to.from_config_map
    from_plan = None if other is None else await group.read_plan(other)
    target = target_of(reset.to, now_ms, from_plan)
    topics = reset.topics or (() if from_plan is None else topics_in(from_plan))
    return await plan_for(group, source, target, topics)


async def plan_for(group: ResetGroup, source: OffsetSource, target: Target, topics: tuple[str, ...]) -> Plan:
    """Resolve a target into a plan; no topics: all that the group consumes. Raises ResetRefused, Unavailable."""
    lookup = await look_up(source, group.group_id, topics)
    if isinstance(target, ToTime):
        at_time = await source.at_time(lookup.ranges.keys(), target.at_ms)
        lookup = Lookup(lookup.group_id, lookup.ranges, lookup.committed, at_time, lookup.topic_ids)
    # In a thread: a plan has up to 200,000 partitions, and the loop serves others meanwhile.
    return await with_times(source, await asyncio.to_thread(resolve, target, lookup))


def refuse_store(spec: ConsumerGroupSpec) -> None:
    """Refuse a reset where the group's offsets are not the truth. Raises ResetRefused."""
    refusal = {"external": EXTERNAL, "transactional": TRANSACTIONAL}.get(spec.offsets.commit.mode)
    if refusal is not None:
        raise ResetRefused(refusal)
