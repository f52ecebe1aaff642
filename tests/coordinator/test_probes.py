"""The coordinator's probes: when it is ready, and that one that is frozen does not answer."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_coordinator.runtime.replicated_state import SlotState
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, form
from tests.conformance.server import ServerDriver
from tests.coordinator.virtual import Memory, Virtual, play
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.web import get


def test_a_process_is_ready_when_all_of_its_slots_are() -> None:
    async def run() -> None:
        virtual = Virtual(store=Memory(latency_s=0.01))
        assert virtual.service.missing() == "50 of 50 slots are not served yet, the first is slot 0"
        starting = asyncio.ensure_future(virtual.start())
        while virtual.service.slots[49].state is not SlotState.CATCH_UP:
            assert virtual.service.missing().endswith("slots are not served yet, the first is slot 49") or (
                virtual.service.slots[48].state is not SlotState.READY
            )
            await asyncio.sleep(0.001)
        assert virtual.service.missing() == "1 of 50 slots are not served yet, the first is slot 49"
        await starting
        assert virtual.service.missing() == ""
        virtual.service.slots[7].stop(pb.NOT_COORDINATOR)
        assert virtual.service.missing() == "1 of 50 slots are not served yet, the first is slot 7"

    play(run)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with serving(tmp_path, (*QUICK, "--log-format=json")) as coordinator:
        yield coordinator


@pytest.mark.process
def test_a_coordinator_that_serves_is_ready_and_one_that_is_frozen_is_not_alive(
    coordinator: Coordinator,
) -> None:
    assert get(coordinator.http, "/livez") == (200, "alive\n")
    assert get(coordinator.http, "/readyz") == (200, "ready\n")
    coordinator.signal(signal.SIGSTOP)
    probe = asyncio.open_connection(*coordinator.http.split(":"))

    async def ask() -> bytes:
        reader, writer = await probe
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        try:
            async with asyncio.timeout(0.5):
                return await reader.read()
        finally:
            writer.close()

    with pytest.raises(TimeoutError):
        asyncio.run(ask())
    coordinator.signal(signal.SIGCONT)
    assert get(coordinator.http, "/livez") == (200, "alive\n")


@pytest.mark.process
def test_who_is_asked_to_stop_answers_what_waits_and_exits_with_0(coordinator: Coordinator) -> None:
    async def body() -> None:
        driver = ServerDriver(coordinator.address, DEFAULT)
        members = [Member(driver, "g") for _ in range(2)]
        await form(*members)
        waiting = members[0].send_join()
        assert await waiting.is_parked()
        stopping = asyncio.ensure_future(asyncio.to_thread(coordinator.stop))
        reply = await waiting.answer()
        assert isinstance(reply, pb.JoinGroupResponse)
        assert reply.error_code == pb.NOT_COORDINATOR
        assert await stopping == 0
        await driver.close()

    asyncio.run(body())
