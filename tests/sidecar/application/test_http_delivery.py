"""Delivery to an application that only speaks HTTP, on real sockets."""

import asyncio
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from typing_extensions import override

from rota_sidecar.application.port import AttachedAlready
from rota_sidecar.config.urls import url_problem
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.ledger.rules import Verdict
from tests.sidecar.application.endpoint import Posted, answer, listening
from tests.sidecar.application.fakes import (
    P0,
    P1,
    FakeDeliveries,
    batch,
    batch_slice,
    handed,
    rebalance_event,
)
from tests.sidecar.application.posting import CONCURRENCY, STORY_S, Scene, delivery, one, play, scene

# ------------------------------------------------------------------------------------------------ what is posted

pytestmark = pytest.mark.process


def test_a_record_is_posted_as_a_cloud_event_in_binary_mode() -> None:
    headers = [[("trace", b"a b%"), ("content-type", b"application/json"), ("gone", None)]]
    record = batch(41, [b'{"n": 1}'], keys=["kä".encode()], headers=headers)

    async def story(playing: Scene) -> None:
        playing.hand(handed(batch_slice(record), delivery_epoch=5, deliveries=2))
        assert await playing.verdict() == on.Judgement(5, P0, 41, 41, Verdict.ACK)
        (posted,) = playing.endpoint.posted
        assert posted == Posted(
            "POST /records?of=orders HTTP/1.1",
            {
                "host": f"127.0.0.1:{playing.endpoint.port}",
                "ce-specversion": "1.0",
                "ce-id": "orders/0/41",
                "ce-source": "/topics/orders",
                "ce-type": "dev.rota.record",
                "ce-time": "2023-11-14T22:13:20.000Z",
                "ce-partitionkey": "k%C3%A4",
                "rota-deliveries": "2",
                "rota-header-trace": "a%20b%25",
                "rota-header-gone": "",
                "content-type": "application/json",
                "content-length": "8",
            },
            b'{"n": 1}',
        )

    play(story)


def test_a_null_value_differs_from_an_empty_one() -> None:
    async def story(playing: Scene) -> None:
        playing.hand(one(None), one(b"", 8))
        await playing.verdict(2)
        null, empty = sorted(playing.endpoint.posted, key=lambda posted: posted.id)
        assert (null.headers["rota-value-is-null"], null.body) == ("true", b"")
        assert "content-type" not in null.headers
        assert empty.headers["content-type"] == "application/octet-stream"
        assert "rota-value-is-null" not in empty.headers

    play(story)


def test_a_header_cannot_break_out_of_its_line() -> None:
    headers = [[("a\r\nx: y", b"1\r\nevil: 2"), ("content-type", b"text/plain\r\nevil: 3")]]

    async def story(playing: Scene) -> None:
        playing.hand(handed(batch_slice(batch(0, [b"v"], headers=headers))))
        await playing.verdict()
        (posted,) = playing.endpoint.posted
        assert posted.headers["rota-header-a%0D%0Ax%3A%20y"] == "1%0D%0Aevil:%202"
        assert posted.headers["content-type"] == "application/octet-stream"
        assert "evil" not in posted.headers

    play(story)


def test_every_record_of_a_slice_is_posted_and_no_other() -> None:
    async def story(playing: Scene) -> None:
        playing.hand(handed(batch_slice(batch(10, [b"a", b"b", b"c", b"d"]), 11, 13)))
        await playing.verdict(2)
        assert sorted((each.id, each.body) for each in playing.endpoint.posted) == [
            ("orders/0/11", b"b"),
            ("orders/0/12", b"c"),
        ]

    play(story)


def test_the_standard_librarys_server_understands_it() -> None:
    seen: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append((self.headers["ce-id"], body))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        @override
        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()

    async def run() -> None:
        deliveries = FakeDeliveries()
        url = f"http://localhost:{server.server_port}/"
        running = asyncio.create_task(delivery(deliveries, url, []).run())
        async with asyncio.timeout(STORY_S):
            await deliveries.until(lambda: deliveries.events)
            for offset in range(3):
                deliveries.there.deliver([one(b"v", offset)])
                await deliveries.until(lambda: len(deliveries.judgements) == offset + 1)  # noqa: B023  awaited here
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert {each.verdict for each in deliveries.judgements} == {Verdict.ACK}

    asyncio.run(run())
    server.shutdown()
    thread.join()
    server.server_close()
    assert seen == [(f"orders/0/{offset}", b"v") for offset in range(3)]


# ------------------------------------------------------------------------------------------------ connections


def test_connections_are_kept() -> None:
    async def story(playing: Scene) -> None:
        for number in range(1, 6):
            playing.hand(one(offset=number))
            await playing.verdict(number)
        assert playing.endpoint.connections == 1

    play(story)


def test_a_kept_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    async def story(playing: Scene) -> None:
        playing.endpoint.answers += [answer(), b""]
        playing.hand(one(offset=1))
        await playing.verdict()
        playing.hand(one(offset=2))
        assert (await playing.verdict(2)).verdict is Verdict.ACK
        assert [each.id for each in playing.endpoint.posted] == ["orders/0/1", "orders/0/2", "orders/0/2"]

    play(story)


def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    async def story(playing: Scene) -> None:
        playing.endpoint.answers.append(answer("200 OK", Connection="close"))
        playing.hand(one(offset=1))
        await playing.verdict()
        playing.hand(one(offset=2))
        await playing.verdict(2)
        assert playing.endpoint.connections == 2

    play(story)


# ------------------------------------------------------------------------------------------------ the attachment


def test_it_attaches_when_somebody_listens_and_takes_one_record_of_a_partition_at_a_time() -> None:
    async def run() -> None:
        deliveries = FakeDeliveries()
        logged: list[tuple[str, str]] = []
        async with asyncio.timeout(STORY_S):
            async with listening() as gone:
                pass
            running = asyncio.create_task(delivery(deliveries, gone.url, logged).run())
            while not logged:
                await asyncio.sleep(0)
            assert deliveries.attached == []
            assert logged[0][0] == "waiting"
            async with listening(port=gone.port):
                await deliveries.until(lambda: deliveries.attached)
                assert deliveries.attached == [(False, False, False)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_as_many_are_under_way_as_may_be_in_work_at_a_time() -> None:
    released = asyncio.Event()

    async def hold(posted: Posted) -> bytes:
        await released.wait()
        return answer()

    async def story(playing: Scene) -> None:
        playing.endpoint.answering = hold
        assert playing.deliveries.credit == CONCURRENCY
        playing.hand(*[one(offset=number) for number in range(CONCURRENCY)])
        await playing.endpoint.until(CONCURRENCY)
        assert playing.deliveries.credit == CONCURRENCY
        released.set()
        await playing.deliveries.until(lambda: playing.deliveries.credit == 2 * CONCURRENCY)

    play(story)


def test_another_concurrency_takes_effect_with_the_next_record() -> None:
    async def story(playing: Scene) -> None:
        playing.deliveries.set_to = DeliveryConfig("g", concurrency=CONCURRENCY + 4)
        playing.hand(one())
        await playing.deliveries.until(lambda: playing.deliveries.credit == CONCURRENCY + 5)

    play(story)


def test_partitions_are_let_go_when_nothing_of_them_is_under_way() -> None:
    released = asyncio.Event()

    async def hold(posted: Posted) -> bytes:
        await released.wait()
        return answer()

    async def story(playing: Scene) -> None:
        playing.endpoint.answering = hold
        playing.hand(one())
        await playing.endpoint.until(1)
        playing.deliveries.there.on_assignment_event(rebalance_event(1, do.Kind.ASSIGNED, P0, P1))
        playing.deliveries.there.on_assignment_event(rebalance_event(2, do.Kind.REVOKING, P0))
        playing.deliveries.there.on_assignment_event(rebalance_event(3, do.Kind.REVOKING, P1))
        assert playing.deliveries.all(on.Acknowledged) == [on.Acknowledged(1), on.Acknowledged(3)]
        released.set()
        await playing.deliveries.until(lambda: len(playing.deliveries.all(on.Acknowledged)) == 3)
        kinds = [type(each).__name__ for each in playing.deliveries.events]
        assert kinds.index("Judged") < len(kinds) - 1 - kinds[::-1].index("Acknowledged")

    play(story)


def test_loss_is_acknowledged_at_once() -> None:
    async def story(playing: Scene) -> None:
        playing.deliveries.there.on_assignment_event(rebalance_event(4, do.Kind.LOST, P0))
        assert playing.deliveries.all(on.Acknowledged) == [on.Acknowledged(4)]

    play(story)


def test_it_goes_clean_when_nothing_is_under_way_and_not_clean_else() -> None:
    async def never(posted: Posted) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def idle(playing: Scene) -> None:
        await playing.stop()
        assert playing.deliveries.detached == [(1, True)]

    async def busy(playing: Scene) -> None:
        playing.endpoint.answering = never
        playing.hand(one())
        await playing.endpoint.until(1)
        await playing.stop()
        assert playing.deliveries.detached == [(1, False)]

    play(idle)
    play(busy)


def test_it_ends_when_the_sidecar_ends_the_attachment() -> None:
    async def story(playing: Scene) -> None:
        playing.deliveries.there.close("the sidecar stops")
        await playing.running
        assert playing.deliveries.detached == [(1, True)]

    play(story)


def test_a_second_application_ends_it() -> None:
    async def run() -> None:
        async with asyncio.timeout(STORY_S), scene() as first:
            with pytest.raises(AttachedAlready):
                await delivery(first.deliveries, first.endpoint.url, []).run()

    asyncio.run(run())


# ------------------------------------------------------------------------------------------------ the URL


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080/a?b=c", "http://localhost", "http://[::1]:80/", "https://127.0.0.1/"]
)
def test_the_application_is_on_this_machine(url: str) -> None:
    assert url_problem(url, insecure=False) == ""


@pytest.mark.parametrize("url", ["http://10.1.2.3:8080/", "http://app.shop.svc/"])
def test_another_machine_is_refused_unless_it_is_meant(url: str) -> None:
    assert "is another machine" in url_problem(url, insecure=False)
    assert url_problem(url, insecure=True) == ""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://127.0.0.1/",
        "http://:80/",
        "http://u:p@127.0.0.1/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/#x",
        "http://127.0.0.1/ä",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    assert "expected a URL such as" in url_problem(url, insecure=True)
