"""A hung application loses its partitions, and gets them again when it lives."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.rules import Verdict
from tests.sidecar.core.delivery.driven import PROCESSING_MS, Driven, committed, names, with_settings


def hung() -> Driven:
    """Two records have verdicts, three have none for too long."""
    driven = Driven().begin(0)
    driven.read(5)
    driven.judge(0, 1)
    driven.pass_time(PROCESSING_MS - 1)
    driven.answer_commit()
    assert driven.delivery.readiness == ""
    assert "Leave" in names(driven.pass_time(1))
    return driven


def gone() -> Driven:
    """The same, out of the group."""
    driven = hung()
    driven.revoke(0)
    driven.revoked(0)
    driven.step(on.LeftGroup())
    return driven


def test_who_gives_no_verdict_in_time_loses_its_partitions_and_it_is_said_why() -> None:
    driven = hung()
    message = driven.last(do.Leave).reason
    assert "orders-0" in message
    assert driven.delivery.readiness == message
    assert driven.last(do.Problem).message == message


def test_each_verdict_gives_time_again() -> None:
    driven = Driven().begin(0)
    driven.read(5)
    for offset in range(4):
        driven.pass_time(PROCESSING_MS - 1)
        driven.judge(offset)
    assert driven.all(do.Leave) == []
    assert "Leave" in names(driven.pass_time(PROCESSING_MS))


def test_who_has_nothing_in_hand_may_take_as_long_as_it_likes() -> None:
    driven = Driven().begin(0, credit=0)
    driven.read(5)
    driven.pass_time(PROCESSING_MS * 10)
    assert driven.all(do.Leave) == []


def test_when_it_leaves_what_has_verdicts_is_committed_and_what_hangs_is_not_waited_for() -> None:
    driven = hung()
    driven.judge(2)
    assert "REVOKING" not in names(driven.revoke(0))
    assert committed(driven.last(do.Commit)) == {0: 3}
    assert names(driven.answer_commit()) == ["ReleasePartitions"]
    assert names(driven.revoked(0)) == ["LOST"]
    assert driven.last(do.AssignmentEvent).reason == driven.last(do.Leave).reason


def test_it_comes_back_when_everything_that_hung_has_a_verdict() -> None:
    driven = gone()
    assert driven.judge(2, 3) == []
    assert driven.delivery.readiness
    assert names(driven.judge(4)) == ["Rejoin"]
    assert driven.delivery.readiness == ""


def test_it_comes_back_when_it_has_stopped_working_on_what_it_lost() -> None:
    driven = gone()
    lost = driven.last(do.AssignmentEvent)
    assert lost.kind is do.Kind.LOST
    assert names(driven.step(on.Acknowledged(lost.event_id))) == ["Rejoin"]


def test_any_verdict_shows_that_it_lives() -> None:
    driven = gone()
    assert names(driven.judge(2, verdict=Verdict.RETRY)) == ["Rejoin"]


def test_what_hung_may_come_to_an_end_before_it_has_left() -> None:
    driven = hung()
    driven.judge(2, 4)
    driven.revoke(0)
    driven.answer_commit()
    driven.revoked(0)
    assert names(driven.step(on.LeftGroup())) == ["Rejoin"]


def test_it_comes_back_with_another_application() -> None:
    driven = gone()
    assert driven.detach() == []
    assert names(driven.attach()) == ["Rejoin"]


def test_who_does_not_acknowledge_its_partitions_loses_them() -> None:
    driven = Driven()
    driven.attach()
    driven.assign(0)
    event_id = driven.last(do.AssignmentEvent).event_id
    driven.find(0)
    assert "Leave" in names(driven.pass_time(PROCESSING_MS))
    driven.lose(0)
    assert driven.step(on.LeftGroup()) == []
    assert names(driven.acknowledge(event_id)) == ["Rejoin"]


def test_nobody_attached_and_records_waiting_is_no_progress_either() -> None:
    driven = Driven()
    driven.assign(0)
    driven.find(0)
    driven.pass_time(PROCESSING_MS * 2)
    assert driven.all(do.Leave) == [], "there is nothing to do"
    driven.read(5)
    driven.pass_time(PROCESSING_MS - 1)
    assert driven.all(do.Leave) == []
    assert "Leave" in names(driven.pass_time(1))
    driven.lose(0)
    assert driven.step(on.LeftGroup()) == []
    assert "Rejoin" in names(driven.attach())


def test_who_comes_in_time_keeps_what_there_is() -> None:
    driven = Driven()
    driven.assign(0)
    driven.find(0)
    driven.read(5)
    driven.pass_time(PROCESSING_MS - 1)
    driven.attach()
    driven.acknowledge()
    driven.answer_commit()
    driven.pass_time(PROCESSING_MS * 2)
    assert driven.all(do.Leave) == []


def test_what_was_picked_by_hand_keeps_nobody_from_anything() -> None:
    driven = Driven()
    driven.attach(credit=10)
    driven.assign(0, is_manual=True)
    driven.acknowledge()
    driven.find(0)
    driven.answer_commit()
    driven.read(5)
    driven.pass_time(PROCESSING_MS * 3)
    assert driven.all(do.Leave) == []


def test_while_suspended_nobody_has_to_be_there() -> None:
    driven = Driven()
    driven.assign(0)
    driven.find(0)
    driven.read(5)
    driven.step(on.Configure(with_settings(driven.delivery.config, suspended=True)))
    driven.pass_time(PROCESSING_MS * 2)
    assert driven.all(do.Leave) == []
