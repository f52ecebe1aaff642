"""Handlers, over a group in memory: verdicts, order, concurrency, rebalances, the end."""

import asyncio
import threading
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.clocks import system_clocks
from rota.connection import background
from rota.consumer.options import Settings
from rota.handlers.lanes import Job, Lanes
from rota.handlers.runner import Runner
from rota.serializers import JSON
from rota.testing import Group
from rota.testing.transport import MemoryTransport
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

P0 = rota.TopicPartition("orders", 0)
WITHIN_S = 60
AnyRecord = rota.Record[Any, Any]


def test_what_returns_is_done() -> None:
    seen = []

    @rota.handler("orders")
    def note(record: AnyRecord) -> None:
        seen.append(record.value)

    with Group(partitions=1) as group:
        for value in (b"a", b"b"):
            group.send("orders", value)
        group.run(note)
        assert seen == [b"a", b"b"]
        assert group.committed == {P0: 2}


def test_a_function_may_be_asynchronous_and_have_its_values_made() -> None:
    seen = []

    @rota.handler("orders", value_deserializer=JSON.deserialize)
    async def note(record: AnyRecord) -> None:
        await asyncio.sleep(0)
        seen.append(record.value)

    with Group() as group:
        group.send("orders", JSON.serialize("orders", {"a": 1}))
        group.run(note)
    assert seen == [{"a": 1}]


def test_a_handler_is_still_a_function() -> None:
    @rota.handler("orders")
    def double(record: AnyRecord) -> object:
        return record.value * 2

    assert double(rota.Record("orders", 0, 0, 0, None, b"a", ())) == b"aa"


def test_a_retry_comes_again_after_its_time_before_what_is_behind_it() -> None:
    seen: list[tuple[bytes, int]] = []

    @rota.handler("orders")
    def note(record: AnyRecord) -> None:
        seen.append((record.value, group.now_ms))
        if len(seen) == 1:
            raise rota.Retry(after=30)

    with Group(partitions=1) as group:
        start = group.now_ms
        for value in (b"a", b"b"):
            group.send("orders", value)
        group.run(note)
    assert [(value, time - start) for value, time in seen] == [(b"a", 0), (b"a", 30_000), (b"b", 30_000)]


def test_an_exception_is_a_retry_with_its_text_until_the_record_is_a_dead_letter() -> None:
    @rota.handler("orders")
    def fail(record: AnyRecord) -> None:
        raise KeyError("price")

    with Group(partitions=1, retries=2) as group:
        group.send("orders", b"a")
        group.run(fail)
        (dead_letter,) = group.dead_letters
    assert (dead_letter.record.value, dead_letter.reason, dead_letter.deliveries) == (
        b"a",
        "KeyError: 'price'",
        3,
    )


def test_a_dead_letter_is_put_aside_at_once_and_a_skip_is_not() -> None:
    @rota.handler("orders")
    def judge(record: AnyRecord) -> None:
        if record.value == b"dead":
            raise rota.DeadLetter("no such customer")
        raise rota.Skip("nobody wants it")

    with Group(partitions=1) as group:
        group.send("orders", b"dead")
        group.send("orders", b"skip")
        group.run(judge)
        assert [(each.reason, each.deliveries) for each in group.dead_letters] == [("no such customer", 1)]
        assert group.committed == {P0: 2}


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_records_of_a_key_are_worked_on_one_after_the_other(ordering: Any) -> None:  # noqa: ANN401  a literal
    working: set[bytes] = set()
    seen: dict[bytes, list[int]] = {}

    @rota.handler("orders", ordering=ordering)
    async def work(record: AnyRecord) -> None:
        assert record.key not in working
        working.add(record.key)
        await asyncio.sleep(0)
        working.remove(record.key)
        seen.setdefault(record.key, []).append(int(record.value))

    with Group() as group:
        for number in range(60):
            group.send("orders", b"%d" % number, key=b"%d" % (number % 5))
        group.run(work)
        assert group.dead_letters == []
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 60


def test_keys_do_not_wait_for_each_other() -> None:
    both = threading.Barrier(2, timeout=WITHIN_S)

    @rota.handler("orders", ordering="key", concurrency=2)
    def meet(record: AnyRecord) -> None:
        both.wait()

    with Group(partitions=1) as group:
        group.send("orders", b"", key=b"a")
        group.send("orders", b"", key=b"b")
        group.run(meet)
        assert group.dead_letters == []


def test_no_more_than_the_concurrency_is_worked_on_at_a_time() -> None:
    working: list[int] = []
    most: list[int] = []

    @rota.handler("orders", ordering="unordered", concurrency=3)
    async def work(record: AnyRecord) -> None:
        working.append(record.offset)
        most.append(len(working))
        await asyncio.sleep(0)
        working.remove(record.offset)

    with Group() as group:
        for _ in range(30):
            group.send("orders", b"")
        group.run(work)
    assert max(most) == 3


def test_two_handlers_share_the_member() -> None:
    seen = []

    @rota.handler("orders")
    def orders(record: AnyRecord) -> None:
        seen.append(("orders", record.value))

    @rota.handler("payments")
    def payments(record: AnyRecord) -> None:
        seen.append(("payments", record.value))

    with Group() as group:
        group.send("orders", b"a")
        group.send("payments", b"b")
        group.run(orders, payments)
    assert sorted(seen) == [("orders", b"a"), ("payments", b"b")]


def made(**more: Any) -> rota.Handler:  # noqa: ANN401  what a handler takes
    return rota.handler("orders", **more)(lambda record: None)


@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        ([], "no handler to run"),
        ([made(), made()], "orders has two handlers"),
        (
            [made(), rota.handler("b", concurrency=2)(lambda record: None)],
            "the same ordering and concurrency",
        ),
        ([lambda record: None], "is not a handler"),
    ],
)
def test_handlers_that_do_not_go_together_are_refused(handlers: list[Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        rota.run(*handlers, sidecar="x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sidecar": "x", "max_poll_records": 1}, "max_poll_records is a setting of polling consumers"),
        ({"sidecar": "x", "dead_letter_topic": "d"}, "dead_letter_topic is a setting of the sidecar"),
    ],
)
def test_settings_that_handlers_have_no_use_for_are_refused(settings: Settings, message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        rota.run(made(), **settings)


@pytest.mark.parametrize("more", [{"ordering": "topic"}, {"concurrency": 0}])
def test_a_handler_that_cannot_be_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        made(**more)


def runner_of(group: Group, handler: rota.Handler) -> Runner:
    async def build() -> Runner:
        return Runner([handler], MemoryTransport(group._sidecar), "test", system_clocks().monotonic_s)

    return background().run(build())


def running_until(begun: threading.Event, runner: Runner) -> threading.Thread:
    """The runner in a thread of its own, once that has happened."""
    thread = threading.Thread(target=lambda: background().run(runner.run(), WITHIN_S))
    thread.start()
    assert begun.wait(WITHIN_S)
    return thread


def test_a_sidecar_with_other_settings_is_refused_with_a_message() -> None:
    with Group() as group:
        group.create_topic("orders", 1)
        runner = runner_of(group, made(ordering="key", concurrency=5))
        with pytest.raises(
            errors.SidecarFailed, match="'partition' and concurrency 64, the handlers want 'key' and 5"
        ):
            background().run(runner.run(), WITHIN_S)


def said_by_handlers(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "rota.handler"]


def test_that_there_is_no_sidecar_is_said_once_and_not_while_it_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = [0.0]

    async def story() -> None:
        @rota.handler("orders")
        def note(record: AnyRecord) -> None: ...

        with Group() as group:
            runner = Runner([note], MemoryTransport(group._sidecar), "test", lambda: now_s[0])
            for now_s[0] in (0.1, 0.2, 2.9):
                runner._on_detached(errors.Disconnected("nobody is there"))
            assert said_by_handlers(caplog) == []
            for now_s[0] in (3.1, 3.5, 90.0):
                runner._on_detached(errors.Disconnected("nobody is there"))
            assert said_by_handlers(caplog) == ["nobody is there"]

    asyncio.run(story())


def test_a_partition_is_let_go_when_what_runs_of_it_is_done() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[bytes] = []

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        seen.append(record.value)
        begun.set()
        assert go_on.wait(WITHIN_S)

    with Group(partitions=1) as group:
        for value in (b"a", b"b"):
            group.send("orders", value)
        runner = runner_of(group, work)
        gone = threading.Event()
        runner.is_done = lambda: not group._sidecar.assigned and gone.is_set()
        running = running_until(begun, runner)
        group.take_away(P0)
        gone.set()
        assert P0 in group._sidecar.assigned
        go_on.set()
        running.join(WITHIN_S)
        assert seen == [b"a"]
        assert group.committed == {P0: 1}


def test_a_lost_partition_is_acknowledged_when_nothing_of_it_runs_any_more() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        begun.set()
        assert go_on.wait(WITHIN_S)

    with Group(partitions=1) as group:
        group.send("orders", b"a")
        runner = runner_of(group, work)
        acknowledged: list[int] = []
        passed_on = group._sidecar.acknowledge

        def acknowledge(event_id: int) -> None:
            acknowledged.append(event_id)
            passed_on(event_id)

        group._sidecar.acknowledge = acknowledge  # type: ignore[method-assign]
        runner.is_done = lambda: len(acknowledged) == 2
        running = running_until(begun, runner)
        group.lose(P0)
        background().run(asyncio.sleep(0.05))
        assert len(acknowledged) == 1
        go_on.set()
        running.join(WITHIN_S)
        assert len(acknowledged) == 2


class Watched(Runner):
    """Says when it was handed something."""

    retried = threading.Event()

    @override
    async def on_records(self, delivery: pb.DeliverResponse) -> None:
        await super().on_records(delivery)
        self.retried.set()


def test_what_comes_to_who_stops_is_not_begun() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[bytes] = []

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        seen.append(record.value)
        begun.set()
        assert go_on.wait(WITHIN_S)

    async def build() -> Watched:
        return Watched([work], MemoryTransport(group._sidecar), "test", system_clocks().monotonic_s)

    with Group(partitions=2) as group:
        group.send("orders", b"a", partition=0)
        runner = background().run(build())
        running = running_until(begun, runner)
        background().loop.call_soon_threadsafe(runner.stop)
        runner.retried.clear()
        group.send("orders", b"b", partition=1)
        assert runner.retried.wait(WITHIN_S)
        go_on.set()
        running.join(WITHIN_S)
        assert seen == [b"a"]
        assert group.committed.get(rota.TopicPartition("orders", 1), 0) == 0


def test_who_stops_finishes_what_runs_and_begins_nothing_else() -> None:
    seen: list[bytes] = []

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        seen.append(record.value)
        background().loop.call_soon_threadsafe(runner.stop)

    with Group(partitions=1) as group:
        for value in (b"a", b"b"):
            group.send("orders", value)
        runner = runner_of(group, work)
        background().run(runner.run(), WITHIN_S)
        assert group.committed == {P0: len(seen)}


def job(offset: int, delivery_epoch: int = 1, turn: int = 0) -> Job:
    return Job(P0, delivery_epoch, rota.Record("orders", 0, offset, 0, None, None, ()), turn)


def test_in_order_a_record_waits_for_the_verdict_on_the_one_before() -> None:
    lanes = Lanes(in_order=True, room=10)
    first, second = job(0), job(1)
    assert lanes.on_records([first, second]) == [first]
    assert not lanes.is_idle([P0])
    assert lanes.on_verdict(first, is_retry=False) == [second]


def test_in_order_all_behind_a_record_that_comes_again_come_again_with_it() -> None:
    lanes = Lanes(in_order=True, room=10)
    first = job(0)
    lanes.on_records([first, job(1), job(2)])
    assert lanes.on_verdict(first, is_retry=True) == []
    again = job(0, turn=1)
    assert lanes.on_records([again]) == [again]


def test_in_order_what_was_on_its_way_behind_a_record_that_comes_again_is_not_begun() -> None:
    lanes = Lanes(in_order=True, room=10)
    first = job(0)
    lanes.on_records([first])
    assert lanes.on_verdict(first, is_retry=True) == []
    assert lanes.on_records([job(1), job(2)]) == []
    # The first one itself may never come again, but as a dead letter.
    second = job(1, turn=1)
    assert lanes.on_records([second, job(2, turn=1)]) == [second]


def test_what_lies_behind_a_record_that_became_a_dead_letter_by_its_last_retry_is_done_too() -> None:
    seen: list[bytes] = []

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        seen.append(record.value)
        if record.value == b"a":
            raise rota.Retry(after=0)

    with Group(partitions=1, retries=1) as group:
        for value in (b"a", b"b", b"c"):
            group.send("orders", value)
        group.run(work)
        assert seen == [b"a", b"a", b"b", b"c"]
        assert group.committed == {P0: 3}


def test_a_newer_ledger_ends_the_older_one() -> None:
    lanes = Lanes(in_order=True, room=10)
    lanes.on_records([job(0), job(1)])
    assert lanes.on_records([job(5, delivery_epoch=2)]) == [job(5, delivery_epoch=2)]
    assert lanes.on_records([job(2)]) == []
    assert lanes.on_verdict(job(0), is_retry=False) == []


def test_a_job_that_outlasts_its_sidecar_holds_up_no_record_of_the_next_one() -> None:
    """A sidecar that starts again numbers its delivery epochs from the beginning."""
    lanes = Lanes(in_order=True, room=10)
    [slow] = lanes.on_records([job(0)])
    lanes.on_disconnect()
    [again] = lanes.on_records([job(0)._replace(attachment=lanes.attachment)])
    assert lanes.on_verdict(again, is_retry=False) == []
    assert not lanes.is_current(slow)
    assert lanes.on_verdict(slow, is_retry=False) == []
    following = job(1)._replace(attachment=lanes.attachment)
    assert lanes.on_records([following]) == [following]


def test_in_order_a_job_that_outlasts_its_sidecar_begins_no_record_beside_another() -> None:
    lanes = Lanes(in_order=True, room=10)
    [slow] = lanes.on_records([job(0)])
    lanes.on_disconnect()
    first, second = (job(offset)._replace(attachment=lanes.attachment) for offset in (0, 1))
    assert lanes.on_records([first, second]) == [first]
    assert lanes.on_verdict(slow, is_retry=False) == []
    assert lanes.on_verdict(first, is_retry=False) == [second]


def test_credit_is_given_for_what_there_is_room_for() -> None:
    lanes = Lanes(in_order=True, room=4)
    assert lanes.credit() == 4
    assert lanes.credit() == 0
    lanes.on_records([job(offset) for offset in range(4)])
    assert lanes.credit() == 0
    for offset in range(2):
        lanes.on_verdict(job(offset), is_retry=False)
    assert lanes.credit() == 2
