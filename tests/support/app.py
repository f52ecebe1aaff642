"""
An application beside a sidecar, as a process, for tests: it attaches over gRPC, judges records, and tells what it did.

    app = App(folder, sidecar.address, ["--pause-ms=5"])
    app.start()
    app.wait("assigned")
    app.wait_until(lambda: len(app.done) == 100)
    app.terminate()

It tells lines of JSON. `assigned`, `revoking`, `revoked` and `lost` carry `partitions`; `done` is about the records of a
partition from `first` to `last`, which got their `verdict` in this delivery; `begun` is told before a record's work with
`--tells-begun`. By its value a record can be made one that fails, hangs or kills: see `rules` below.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc.aio

from rota_proto.log.columns import unpack
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from tests.support.processes import Process, current_owner
from tests.support.workdir import logs

if TYPE_CHECKING:
    from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerAsyncStub

WITHIN_S = 60
CREDIT = 1_000
# Records judged together at most.
TOGETHER = 500
KINDS = {pb.ASSIGNED: "assigned", pb.REVOKING: "revoking", pb.REVOKED: "revoked", pb.LOST: "lost"}
VERDICTS = {"retry": pb.RETRY, "dead-letter": pb.DEAD_LETTER, "skip": pb.SKIP}

Event = Mapping[str, Any]
Partition = tuple[str, int]


class App:
    """One application; `start` again after `kill` is the container that restarts."""

    def __init__(self, folder: Path, sidecar: str, flags: Sequence[str] = (), *, name: str = "app") -> None:
        self.name = name
        self._sidecar = sidecar
        self._flags = flags
        self._logs = logs(folder)
        self._starts = 0
        self._process: Process | None = None
        self._owner = current_owner()
        self._event_files: list[Path] = []
        self._seen: list[Event] = []
        # In which life, and how far there.
        self._reading, self._read_to = 0, 0

    def start(self, *more_flags: str) -> None:
        """Start it; it ends with the thread that called this."""
        self._starts += 1
        begin = f"{self.name}-{self._starts}"
        self._event_files.append(self._logs / f"{begin}.events")
        self._event_files[-1].touch()
        command = [sys.executable, "-m", "tests.support.app", f"--sidecar={self._sidecar}"]
        command += [f"--out={self._event_files[-1]}", *self._flags, *more_flags]
        self._process = Process.start(self.name, command, log=self._logs / f"{begin}.log", owner=self._owner)

    @property
    def events(self) -> Sequence[Event]:
        """All that it told, in all its lives."""
        while True:
            with self._event_files[self._reading].open("rb") as file:
                file.seek(self._read_to)
                # One that was killed may not have come to the end of its line.
                complete, _, _ = file.read().rpartition(b"\n")
            if complete:
                self._read_to += len(complete) + 1
                self._seen += [json.loads(line) for line in complete.splitlines()]
            if self._reading == len(self._event_files) - 1:
                return self._seen
            self._reading, self._read_to = self._reading + 1, 0

    @property
    def done(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of each record that it is done with, in order, repetitions included."""
        return [
            (event["topic"], event["partition"], offset)
            for event in self.events
            if event["event"] == "done" and event["verdict"] != "RETRY"
            for offset in range(event["first"], event["last"] + 1)
        ]

    @property
    def partitions(self) -> set[Partition]:
        """Partitions that it owns, by its events."""
        held: set[Partition] = set()
        for event in self.events:
            complete = {(topic, number) for topic, number in event.get("partitions", ())}
            if event["event"] == "assigned":
                held |= complete
            elif event["event"] in ("revoked", "lost"):
                held -= complete
            elif event["event"] == "attached":
                held = set()
        return held

    def wait_until(self, holds: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
        """Return as soon as that holds."""
        try:
            self.process.wait_until(holds, within_s=within_s)
        except Exception as error:
            error.add_note("\n".join(["it told last:", *map(str, self.events[-12:])]))
            raise

    def wait(self, event: str, *, times: int = 1, within_s: float = WITHIN_S) -> Event:
        """The last of so many events of this name."""
        found: list[Event] = []

        def is_there() -> bool:
            found[:] = [each for each in self.events if each["event"] == event]
            return len(found) >= times

        self.wait_until(is_there, within_s=within_s)
        return found[times - 1]

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP freezes it, SIGCONT wakes it; SIGUSR1 lets it go on with `--holds`."""
        os.kill(self.process.pid, number)

    def terminate(self, *, within_s: float = WITHIN_S) -> int:
        """SIGTERM: it says goodbye; the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(within_s=within_s)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.process.kill()

    def stop(self) -> None:
        """End it whatever it does, if it runs."""
        if self._process is not None and self._process.exit_code is None:
            self.signal(signal.SIGCONT)
            self._process.stop()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process


@contextmanager
def running(*apps: App) -> Iterator[None]:
    """Start them all; those that run are ended in the end."""
    try:
        for app in apps:
            app.start()
        yield
    finally:
        for app in apps:
            app.stop()


# ---------------------------------------------------------------------------------------------- the process


class Record(NamedTuple):
    """One that is to be worked on."""

    partition: Partition
    ledger: int
    offset: int
    deliveries: int
    turn: int
    value: bytes


class Attached:
    """One attachment, from its hello to its end."""

    def __init__(
        self, options: argparse.Namespace, emit: Callable[..., None], released: asyncio.Event
    ) -> None:
        self._options = options
        self._emit = emit
        self._released = released
        self._to_attach: asyncio.Queue[pb.AttachRequest | None] = asyncio.Queue()
        self._to_deliver: asyncio.Queue[pb.DeliverRequest | None] = asyncio.Queue()
        self._records: deque[Record] = deque()
        self._arrived = asyncio.Event()
        # To be acknowledged when nothing of these is in hand any more.
        self._releasing: dict[int, set[Partition]] = {}
        self._working_on: Partition | None = None
        # Records that were on their way when their partition went are nobody's: they are not begun.
        self._has: set[Partition] = set()
        # By ledger, the turn and the offset of each RETRY.
        self._retried: dict[int, list[tuple[int, int]]] = {}
        self._is_attached = False
        self._ends = asyncio.Event()

    async def run(self, stub: "ConsumerAsyncStub") -> None:
        """Until the sidecar ends it."""
        self._to_attach.put_nowait(pb.AttachRequest(hello=pb.AttachRequest.Hello(client_id="app")))
        responses = stub.Attach(outgoing(self._to_attach), wait_for_ready=True)
        ending = asyncio.ensure_future(self._end(responses.cancel))
        try:
            await self._attend(stub, responses)
        except asyncio.CancelledError:
            if not self._ends.is_set():
                raise
        finally:
            ending.cancel()

    async def _end(self, cancel: Callable[[], object]) -> None:
        await self._ends.wait()
        cancel()

    async def _attend(self, stub: "ConsumerAsyncStub", responses: AsyncIterable[pb.AttachResponse]) -> None:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work())
            delivering: asyncio.Task[None] | None = None
            async for response in responses:
                if response.HasField("attached"):
                    self._is_attached = True
                    self._emit("attached", session=response.attached.session)
                    hello = pb.DeliverRequest.Hello(session=response.attached.session)
                    self._to_deliver.put_nowait(pb.DeliverRequest(hello=hello))
                    delivering = group.create_task(self._deliver(stub))
                else:
                    self._happen(response.event)
            work.cancel()
            if delivering is not None:
                delivering.cancel()

    def say_goodbye(self) -> None:
        """Close cleanly; before it is attached there is no session to close."""
        if not self._is_attached:
            self._ends.set()
            return
        self._to_attach.put_nowait(pb.AttachRequest(goodbye=pb.AttachRequest.Goodbye()))
        self._to_attach.put_nowait(None)

    def _happen(self, event: pb.AttachResponse.Event) -> None:
        partitions = {(each.topic, each.partition) for each in event.partitions}
        self._emit(
            KINDS[event.kind],
            partitions=sorted(partitions),
            tenure=event.tenure.number,
            generation=event.tenure.generation_id,
            reason=event.reason,
        )
        if event.kind == pb.ASSIGNED:
            self._has |= partitions
        if event.kind in (pb.REVOKING, pb.LOST):
            self._has -= partitions
            # What it has begun it ends, though nobody may be interested any more.
            self._releasing[event.event_id] = partitions
            self._acknowledge_what_is_let_go()
            return
        if event.kind != pb.REVOKED:
            self._acknowledge(event.event_id)

    async def _deliver(self, stub: "ConsumerAsyncStub") -> None:
        self._grant(self._options.credit)
        with suppress(grpc.aio.AioRpcError):  # Attach says why
            async for response in stub.Deliver(outgoing(self._to_deliver)):
                for part in response.partitions:
                    came = list(records_of(part))
                    meant = [each for each in came if each.partition in self._has and not self._is_void(each)]
                    self._records.extend(meant)
                    self._grant(len(came) - len(meant))
                for refusal in response.refusals:
                    self._emit("refused", message=refusal.message, offset=refusal.offset)
                self._arrived.set()

    async def _work(self) -> None:
        while True:
            if not self._records:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            if self._options.holds:
                await self._released.wait()
            together = self._next_ones()
            first = together[0]
            self._working_on = first.partition
            if self._options.tells_begun:
                self._emit("begun", offset=first.offset, **about(first))
            verdict = await self._verdict(first)
            self._working_on = None
            if verdict == pb.RETRY:
                # In the order of a partition what came behind it comes again, too.
                self._drop_behind(first)
            self._judge(together, verdict)
            self._acknowledge_what_is_let_go()

    def _next_ones(self) -> list[Record]:
        """Records that are worked on in one go: several, unless each takes time or has a rule."""
        together = [self._records.popleft()]
        if self._options.pause_ms or self._options.tells_begun or self._rule(together[0]):
            return together
        while self._records and len(together) < TOGETHER:
            last, following = together[-1], self._records[0]
            is_next = following._replace(value=b"") == last._replace(value=b"", offset=last.offset + 1)
            if not is_next or self._rule(following):
                break
            together.append(self._records.popleft())
        return together

    def _rule(self, record: Record) -> str:
        text = record.value.decode(errors="replace")
        return str(self._options.rules.get(text, ""))

    async def _verdict(self, record: Record) -> "pb.Verdict.ValueType":
        """
        Process a record as its value says: `hang`, `die`, `freeze`, `retry`, `retry-once`, `dead-letter`, `skip`, or
        done.
        """
        if self._options.pause_ms:
            await asyncio.sleep(self._options.pause_ms / 1000)
        rule = self._rule(record)
        if rule == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if rule == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if rule == "hang":
            await asyncio.Event().wait()
        if rule == "retry-once":
            return pb.RETRY if record.deliveries == 1 else pb.ACK
        return VERDICTS.get(rule, pb.ACK)

    def _judge(self, together: Sequence[Record], verdict: "pb.Verdict.ValueType") -> None:
        first, last = together[0], together[-1]
        # Told first: what was done may be repeated after a kill, and is not forgotten.
        name = pb.Verdict.Name(verdict)
        self._emit("done", first=first.offset, last=last.offset, verdict=name, **about(first))
        judgement = pb.DeliverRequest.Judgement(
            partition=pb.TopicPartition(topic=first.partition[0], partition=first.partition[1]),
            delivery_epoch=first.ledger,
            offset=first.offset,
            last_offset=last.offset if last is not first else None,
            verdict=verdict,
            reason="told so" if verdict != pb.ACK else "",
        )
        judgements = pb.DeliverRequest.Judgements(judgements=[judgement])
        self._to_deliver.put_nowait(pb.DeliverRequest(judgements=judgements))
        self._grant(len(together))

    def _drop_behind(self, record: Record) -> None:
        if not self._options.unordered:
            self._retried.setdefault(record.ledger, []).append((record.turn, record.offset))
            kept = [each for each in self._records if not self._is_void(each)]
            self._grant(len(self._records) - len(kept))
            self._records = deque(kept)

    def _is_void(self, record: Record) -> bool:
        """Return True if the record will be delivered again because an earlier one in its partition will be."""
        return any(
            record.turn <= turn and record.offset > offset
            for turn, offset in self._retried.get(record.ledger, ())
        )

    def _grant(self, records: int) -> None:
        if records:
            self._to_deliver.put_nowait(pb.DeliverRequest(credit=pb.DeliverRequest.Credit(records=records)))

    def _acknowledge_what_is_let_go(self) -> None:
        in_flight = {record.partition for record in self._records} | {self._working_on}
        for event_id, partitions in list(self._releasing.items()):
            if not partitions & in_flight:
                del self._releasing[event_id]
                self._acknowledge(event_id)

    def _acknowledge(self, event_id: int) -> None:
        # Behind the verdicts, which it must not overtake.
        acknowledge = pb.AttachRequest.Acknowledge(event_id=event_id)
        self._to_deliver.put_nowait(pb.DeliverRequest(acknowledge=acknowledge))


def about(record: Record) -> dict[str, object]:
    """Fields that identify the delivery of a record, except its offset."""
    topic, number = record.partition
    return {
        "topic": topic,
        "partition": number,
        "deliveries": record.deliveries,
        "value": record.value.decode(errors="replace"),
    }


def records_of(part: pb.PartitionRecords) -> Iterator[Record]:
    """One by one."""
    partition = (part.partition.topic, part.partition.partition)
    for batch in part.batches:
        values = unpack(batch.payload, batch.count, batch.base_timestamp_ms).values or [None] * batch.count
        for index, value in enumerate(values):
            offset = batch.base_offset + index
            if offset >= part.first_offset:
                yield Record(partition, part.delivery_epoch, offset, part.deliveries, part.turn, value or b"")


async def outgoing(queue: "asyncio.Queue[Any | None]") -> AsyncIterator[Any]:
    """Yield from the queue until None."""
    while (message := await queue.get()) is not None:
        yield message


async def main(options: argparse.Namespace) -> None:
    """Attach, over and over, until told to end."""
    loop = asyncio.get_running_loop()
    released, ends = asyncio.Event(), asyncio.Event()
    attached: list[Attached] = []

    def end() -> None:
        ends.set()
        for each in attached:
            each.say_goodbye()

    loop.add_signal_handler(signal.SIGUSR1, released.set)
    loop.add_signal_handler(signal.SIGTERM, end)
    with options.out.open("a", buffering=1) as out:

        def emit(event: str, **fields: object) -> None:
            stamp = {"at_ms": int(time.time() * 1000), "monotonic_ms": int(time.monotonic() * 1000)}
            out.write(json.dumps({"event": event, **fields, **stamp}) + "\n")

        while not ends.is_set():
            async with grpc.aio.insecure_channel(options.sidecar) as channel:
                attached[:] = [Attached(options, emit, released)]
                try:
                    await attached[0].run(ConsumerStub(channel))
                except* grpc.aio.AioRpcError as failed:
                    (error,) = failed.exceptions[:1]
                    assert isinstance(error, grpc.aio.AioRpcError)
                    emit("detached", code=error.code().name, message=error.details())
                    with suppress(TimeoutError):
                        async with asyncio.timeout(options.again_ms / 1000):
                            await ends.wait()
        emit("ended")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sidecar", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--credit", type=int, default=CREDIT)
    parser.add_argument("--pause-ms", type=int, default=0, help="for each record")
    parser.add_argument("--again-ms", type=int, default=200, help="between attachments")
    parser.add_argument("--rules", type=json.loads, default={}, help="what becomes of records, by value")
    parser.add_argument("--holds", action="store_true", help="begin no work before SIGUSR1")
    parser.add_argument("--unordered", action="store_true", help="a retry concerns one record")
    parser.add_argument("--tells-begun", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(main(parsed(sys.argv[1:])))
