"""What the application says about records: verdicts, or how far it is when it reads by itself."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core


def judged(core: Core, event: on.Judged) -> None:
    """Each on its own: one that is wrong holds up no other."""
    for judgement in event.judgements:
        place = core.books.get(judgement.ledger)
        book = None if place is None else place.book
        if place is None or book is None:
            _judged_late(core, judgement)
            continue
        outcome = book.ledger.judge(
            judgement.first,
            judgement.last,
            judgement.verdict,
            core.now_ms,
            retry_after_ms=judgement.retry_after_ms,
            reason=judgement.reason,
        )
        if outcome.refusal:
            core.actions.append(
                do.Refuse(judgement.ledger, place.partition, judgement.first, outcome.refusal)
            )
            continue
        core.actions.append(do.Settled(place.partition, judgement.verdict.value, outcome.settled))
        core.recount(book)
        core.touch(place)


def _judged_late(core: Core, judgement: on.Judgement) -> None:
    """It changes nothing; but a hung application that says so is not hung any more."""
    retired = core.retired.get(judgement.ledger)
    if retired is None:
        return
    _, ledger = retired
    ledger.judge(judgement.first, judgement.last, judgement.verdict, core.now_ms)
    if not ledger.in_flight:
        del core.retired[judgement.ledger]


def reported(core: Core, event: on.Reported) -> None:
    """How far it is; less than it said before says nothing, for that it has a seek."""
    if not core.traits.reads_itself:
        return
    for each in event.positions:
        place = core.places.get(each.partition)
        if place is None or place.tenure.number != each.tenure:
            continue
        if place.reported is None or each.position >= place.reported:
            place.reported, place.reported_ms = each.position, each.timestamp_ms
            if place.book is not None:
                place.book.ledger.settle_below(each.position, core.now_ms)
                core.recount(place.book)
            core.touch(place)
