"""A fault in the core, injected on purpose: no request waits for ever, and acknowledged commits are kept."""

import pytest

from rota_coordinator.core.group import round
from rota_coordinator.runtime.replicated_state import SlotState
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import Member, fetch, form
from tests.coordinator.virtual import Virtual, play


class Fault(Exception):
    """An unexpected exception."""


def break_off(*arguments: object) -> None:
    raise Fault


def test_a_decision_that_breaks_off_has_its_slot_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        virtual = await Virtual().start()
        members = [Member(virtual, "g") for _ in range(2)]
        await form(*members)
        assert await members[0].commit({0: 7}) == pb.NONE
        joining = members[0].send_join()  # the leader's: it waits for the other one
        assert await joining.is_parked()

        with monkeypatch.context() as broken:
            broken.setattr(round, "heartbeat", break_off)
            assert await members[1].heartbeat() == pb.NOT_COORDINATOR
        assert [type(fault) for fault in virtual.faults] == [Fault]
        assert "reloading it" in virtual.reports[-1]
        waited = await joining.answer()
        assert isinstance(waited, pb.JoinGroupResponse)
        assert waited.error_code == pb.NOT_COORDINATOR

        await virtual.pass_time(1)
        assert virtual.service.slot("g").state is SlotState.READY
        assert [await member.heartbeat() for member in members] == [pb.NONE, pb.NONE]
        assert await fetch(virtual, "g", 0) == {0: 7}

    play(run)


def test_time_that_breaks_a_group_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        virtual = await Virtual().start()
        member = Member(virtual, "g", session_ms=1_000)
        await form(member)
        with monkeypatch.context() as broken:
            broken.setattr("rota_coordinator.core.group.expiry.expire_session", break_off)
            await virtual.pass_time(1.5)
        assert [type(fault) for fault in virtual.faults] == [Fault]
        assert await member.heartbeat() == pb.NONE

    play(run)
