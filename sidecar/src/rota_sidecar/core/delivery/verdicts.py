"""Verdicts of the application, and positions of an application that fetches records itself."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core
from rota_sidecar.core.delivery.partition import RecordTime


def judged(core: Core, event: on.Judged) -> None:
    """Apply each verdict on its own; an invalid one is answered with Refuse, and the others apply."""
    for judgement in event.judgements:
        partition_state = core.fetch_sessions.get(judgement.delivery_epoch)
        fetch_session = None if partition_state is None else partition_state.fetch_session
        # Each process of the sidecar numbers its epochs from 1, so one of the process before may be another partition's now.
        if (
            partition_state is None
            or fetch_session is None
            or partition_state.partition != judgement.partition
        ):
            _judged_late(core, judgement)
            continue
        outcome = fetch_session.ledger.judge(
            judgement.first,
            judgement.last,
            judgement.verdict,
            core.now_ms,
            retry_after_ms=judgement.retry_after_ms,
            reason=judgement.reason,
        )
        if outcome.refusal:
            core.actions.append(
                do.Refuse(
                    judgement.delivery_epoch, partition_state.partition, judgement.first, outcome.refusal
                )
            )
            continue
        core.actions.append(do.Settled(partition_state.partition, judgement.verdict.value, outcome.settled))
        core.recount(fetch_session)
        core.touch(partition_state)


def _judged_late(core: Core, judgement: on.Judgement) -> None:
    """Note a verdict on a removed partition, which changes no offset but shows that a hung application works again."""
    retired = core.retired.get(judgement.delivery_epoch)
    if retired is None or retired[0] != judgement.partition:
        return
    _, ledger = retired
    ledger.judge(judgement.first, judgement.last, judgement.verdict, core.now_ms)
    if not ledger.in_flight:
        del core.retired[judgement.delivery_epoch]


def reported(core: Core, event: on.Reported) -> None:
    """Apply reported positions; one below an earlier report is ignored, because a seek moves back."""
    if not core.traits.reads_itself:
        return
    for each in event.positions:
        partition_state = core.partition_states.get(each.partition)
        if partition_state is None or partition_state.tenure.number != each.tenure:
            continue
        if each.timestamp_only:
            partition_state.reported_time = RecordTime(each.position, each.timestamp_ms)
        elif partition_state.reported is None or each.position >= partition_state.reported:
            partition_state.reported = each.position
            partition_state.reported_time = RecordTime(each.position, each.timestamp_ms)
            if partition_state.fetch_session is not None:
                partition_state.fetch_session.ledger.settle_below(each.position, core.now_ms)
                core.recount(partition_state.fetch_session)
            core.touch(partition_state)
