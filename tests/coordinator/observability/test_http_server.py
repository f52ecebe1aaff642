"""The page for probes: when it says ready, and that no client can make it wait, grow or fall."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from rota_coordinator.observability import http_server
from rota_coordinator.observability.http_server import CannotListen, HealthServer, Page, probes
from rota_coordinator.runtime.slot import SlotState
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, form
from tests.conformance.server import ServerDriver
from tests.coordinator.virtual import Memory, Virtual, play
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.web import get

Ask = Callable[[bytes], Coroutine[None, None, bytes]]


def served(body: Callable[[Ask], Coroutine[None, None, None]], missing: str = "") -> None:
    """Run a body with a server that has one page beside the probes, and a way to send it bytes."""

    async def run() -> None:
        big = Page(HTTPStatus.OK, b"x" * 1_000_000)
        server = HealthServer({**probes(lambda: missing), "/big": lambda: big})
        host, port = (await server.start("127.0.0.1:0")).split(":")

        async def ask(request: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            try:
                return await reader.read()
            finally:
                writer.close()

        try:
            await body(ask)
        finally:
            await server.stop()

    asyncio.run(run())


def test_probes_say_alive_and_ready() -> None:
    async def body(ask: Ask) -> None:
        assert await ask(b"GET /livez HTTP/1.1\r\n\r\n") == (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Content-Length: 6\r\nConnection: close\r\n\r\nalive\n"
        )
        assert (await ask(b"GET /readyz?verbose HTTP/1.0\r\nHost: x\r\n\r\n")).endswith(b"\r\n\r\nready\n")

    served(body)


def test_what_is_missing_is_said_in_one_line() -> None:
    async def body(ask: Ask) -> None:
        reply = await ask(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert reply.startswith(b"HTTP/1.1 503 ")
        assert reply.endswith(b"\r\n\r\nslot 3 is read\n")
        assert b" 200 " in await ask(b"GET /livez HTTP/1.1\r\n\r\n"), "who is not ready is alive"

    served(body, missing="slot 3 is read")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /livez HTTP/1.1\r\n\r\n", 405),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"\x16\x03\x01\x02 tls hello\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n" + b"x" * 20_000 + b"\r\n\r\n", 431),
    ],
)
def test_anything_else_is_refused(request_bytes: bytes, status: int) -> None:
    async def body(ask: Ask) -> None:
        assert (await ask(request_bytes)).startswith(f"HTTP/1.1 {status} ".encode())

    served(body)


def test_a_client_that_never_finishes_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "PATIENCE_S", 0.05)

    async def body(ask: Ask) -> None:
        async with asyncio.timeout(5):
            assert await ask(b"GET /livez") == b""

    served(body)


def test_of_too_many_connections_the_oldest_are_closed_and_the_page_is_shown_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)

    async def body(ask: Ask) -> None:
        silent = [asyncio.ensure_future(ask(b"")) for _ in range(10)]
        async with asyncio.timeout(5):
            while sum(each.done() for each in silent) < 7:
                await asyncio.wait(
                    [each for each in silent if not each.done()], return_when="FIRST_COMPLETED"
                )
        assert [each.done() for each in silent].count(False) == 3
        assert (await ask(b"GET /livez HTTP/1.1\r\n\r\n")).endswith(b"alive\n")
        for each in silent:
            each.cancel()
        await asyncio.gather(*silent, return_exceptions=True)

    served(body)


def test_a_taken_address_is_refused_with_what_to_do() -> None:
    async def run() -> None:
        first, second = HealthServer({}), HealthServer({})
        address = await first.start("127.0.0.1:0")
        with pytest.raises(CannotListen, match="name another address"):
            await second.start(address)
        await first.stop()

    asyncio.run(run())


def test_a_process_is_ready_when_all_of_its_slots_are() -> None:
    async def run() -> None:
        virtual = Virtual(store=Memory(latency_s=0.01))
        assert virtual.service.missing() == "50 of 50 slots are not served yet, slot 0 first"
        starting = asyncio.ensure_future(virtual.start())
        while virtual.service.slots[49].state is not SlotState.CATCH_UP:
            assert virtual.service.missing().endswith("slots are not served yet, slot 49 first") or (
                virtual.service.slots[48].state is not SlotState.READY
            )
            await asyncio.sleep(0.001)
        assert virtual.service.missing() == "1 of 50 slots are not served yet, slot 49 first"
        await starting
        assert virtual.service.missing() == ""
        virtual.service.slots[7].stop(pb.NOT_COORDINATOR)
        assert virtual.service.missing() == "1 of 50 slots are not served yet, slot 7 first"

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
