"""Explain a ConsumerGroup by its status and its Events: nothing is guessed, what they do not hold is named with where to look. Pure."""

from collections.abc import Iterator, Sequence

from rota_cli.clusters.kubernetes.resource import ConsumerGroup, Event
from rota_cli.diagnosis.explanation import Remark
from rota_cli.diagnosis.resource_changes import describe_condition, describe_decision, describe_reset
from rota_cli.output.units import pluralize

EVENTS_SHOWN = 10


def explain_resource(group: ConsumerGroup, events: Sequence[Event] | None) -> list[Remark]:
    """Explain a ConsumerGroup; `events` are sorted by time, None: they could not be read."""
    return [
        *_state(group),
        *_rebalance(group),
        *_assignment(group),
        *_scaling(group),
        *([Remark("reset", describe_reset(group))] if group.offset_reset else []),
        *_reading(group),
        *_events(events),
    ]


def _state(group: ConsumerGroup) -> Iterator[Remark]:
    ready = group.condition("Ready")
    if group.phase is None or ready is None:
        yield Remark("state", "the operator has written no status; see `kubectl rota doctor`", known=False)
        return
    generation = "" if group.group_generation is None else f", generation {group.group_generation}"
    # The message of an unknown condition says where to look.
    yield Remark(
        "state", f"{group.phase}{generation}: {describe_condition(ready)}", ready.status != "Unknown"
    )


def _rebalance(group: ConsumerGroup) -> Iterator[Remark]:
    now, last = group.condition("Rebalancing"), group.rebalance
    if now is not None and now.status == "True":
        yield Remark("rebalance", describe_condition(now))
    if last.reason is None and last.duration_ms is None:
        yield Remark(
            "rebalance",
            "the status holds no last rebalance: the operator has seen none since it watches the group",
            known=False,
        )
        return
    said = f"the last rebalance was triggered by: {last.reason or 'unknown'}"
    if last.duration_ms is not None:
        said += f"; it took {last.duration_ms} ms"
    if last.moved_partitions is not None:
        said += f" and moved {pluralize(last.moved_partitions, 'partition')}"
    yield Remark("rebalance", said)


def _assignment(group: ConsumerGroup) -> Iterator[Remark]:
    if group.members is None:
        yield Remark(
            "assignment", "the status holds no members: their coordinator or sidecars are silent", known=False
        )
        return
    for each in group.placements:
        lag = (
            "unknown lag" if each.lag_records is None else f"a lag of {pluralize(each.lag_records, 'record')}"
        )
        yield Remark("assignment", f"{each.pod} owns {pluralize(each.partitions, 'partition')} with {lag}")
    if group.unowned_partitions:
        yield Remark("assignment", f"{pluralize(group.unowned_partitions, 'partition')} without an owner")
    idle = sum(not each.partitions for each in group.placements)
    if idle and group.partitions and not group.unowned_partitions:
        yield Remark(
            "assignment",
            f"{idle} of {pluralize(group.members, 'member')} {'is' if idle == 1 else 'are'} idle, with "
            f"{pluralize(group.partitions, 'partition')}: add partitions or run fewer replicas",
        )
    yield Remark(
        "assignment",
        f"which partitions each member owns is not in the status; see `{group.rota_command('explain')}`",
        known=False,
    )


def _scaling(group: ConsumerGroup) -> Iterator[Remark]:
    if explanation := group.scaling.get("explanation"):
        recommended = group.scaling.get("recommendation")
        wanted = "" if recommended is None else f"{pluralize(recommended, 'replica')} recommended: "
        yield Remark("scaling", f"{wanted}{explanation}")
    yield from (Remark("scaling", describe_decision(each)) for each in group.scaling.get("decisions") or ())
    active = group.condition("ScalingActive")
    if active is None:
        yield Remark("scaling", "the status has no condition ScalingActive", known=False)
        return
    desired = (
        "" if group.desired_replicas is None else f"{pluralize(group.desired_replicas, 'replica')} desired; "
    )
    yield Remark("scaling", f"{desired}{describe_condition(active)}")


def _reading(group: ConsumerGroup) -> Iterator[Remark]:
    for kind in ("Stuck", "Lagging"):
        condition = group.condition(kind)
        if condition is not None and condition.status != "False":
            yield Remark("reading", describe_condition(condition), known=condition.status == "True")


def _events(events: Sequence[Event] | None) -> Iterator[Remark]:
    if events is None:
        yield Remark("event", "Events could not be read; see `kubectl rota doctor`", known=False)
        return
    for event in events[-EVENTS_SHOWN:]:
        times = f" ({event.count} times)" if event.count > 1 else ""
        yield Remark("event", f"{event.at or 'at an unknown time'} {event.reason}{times}: {event.message}")
