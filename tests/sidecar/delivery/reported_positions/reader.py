"""
An application that reads with a client of its own, and has a sidecar for membership and fenced commits: it does what a
test says, step by step, and nothing by itself.

    with Reader(sidecar, "events") as reader:
        assigned = reader.wait(pb.ASSIGNED)
        reader.acknowledge(assigned)
        reader.report({0: At(17, timestamp_ms)})
"""

import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import NamedTuple, Self, TypeAlias

import grpc

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from tests.support.processes import wait_for
from tests.support.sidecar import Deliverer

WITHIN_S = 60

Event = pb.AttachResponse.Event
Kind: TypeAlias = pb.RebalanceEventKind.ValueType


class At(NamedTuple):
    """The first record that is not done; no time: there is none yet."""

    position: int
    timestamp_ms: int | None = None


class Reader:
    """One application, for a topic; to be used by one thread."""

    def __init__(self, sidecar: Deliverer, topic: str, *, commits_itself: bool = False) -> None:
        self.name = f"the application of {sidecar.name}"
        self._address = sidecar.address
        self._topic = topic
        self._hello = pb.AttachRequest.Hello(
            client_id=self.name, reads_itself=True, commits_itself=commits_itself
        )
        # In which tenure it has each partition.
        self.tenures: dict[int, int] = {}
        self._events: list[Event] = []
        self._next = 0
        self._requests: SimpleQueue[pb.AttachRequest | None] = SimpleQueue()
        self._receiver = threading.Thread(target=self._receive)
        self._problem: grpc.RpcError | None = None

    def __enter__(self) -> Self:
        self._channel = grpc.insecure_channel(self._address)
        self._stub = ConsumerStub(self._channel)
        self._requests.put(pb.AttachRequest(hello=self._hello))
        self._stream = self._stub.Attach(iter(self._requests.get, None))
        self._receiver.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._requests.put(None)
        self._channel.close()
        self._receiver.join(WITHIN_S)

    def _receive(self) -> None:
        try:
            for response in self._stream:
                if response.HasField("event"):
                    self._events.append(response.event)
        except grpc.RpcError as error:
            self._problem = error

    # What it is told

    def wait(self, kind: Kind) -> Event:
        """The next event of this kind that names a partition, after the one that was waited for last."""
        found: list[Event] = []

        def has_come() -> bool:
            assert self._problem is None, self._problem
            while self._next < len(self._events) and not found:
                event = self._events[self._next]
                self._next += 1
                self._note(event)
                if event.kind == kind and event.partitions:
                    found.append(event)
            return bool(found)

        wait_for(f"{self.name} is told {pb.RebalanceEventKind.Name(kind)}", has_come, within_s=WITHIN_S)
        return found[0]

    def _note(self, event: Event) -> None:
        numbers = numbers_of(event)
        if event.kind == pb.ASSIGNED:
            self.tenures |= dict.fromkeys(numbers, event.tenure.number)
            if not numbers:
                # Nothing comes with it, and nothing is to be got ready.
                self.acknowledge(event)
        elif event.kind in (pb.REVOKED, pb.LOST):
            for number in numbers:
                del self.tenures[number]

    def was_notified_of(self, number: int) -> bool:
        """Return True if an event so far named this partition."""
        return any(number in numbers_of(event) for event in self._events)

    def take(self) -> frozenset[int]:
        """Wait for the next assignment and acknowledge it; return its partitions."""
        assigned = self.wait(pb.ASSIGNED)
        self.acknowledge(assigned)
        return numbers_of(assigned)

    # What it says

    def acknowledge(self, event: Event) -> None:
        """Acknowledge an event."""
        self._say(acknowledge=pb.AttachRequest.Acknowledge(event_id=event.event_id))

    def report(self, positions: Mapping[int, At], tenures: Mapping[int, int] | None = None) -> None:
        """Report the position in each of these partitions."""
        held = self.tenures if tenures is None else tenures
        report = pb.AttachRequest.Report(
            positions=[
                pb.AttachRequest.Report.Position(
                    partition=self._partition(number),
                    tenure_number=held[number],
                    position=at.position,
                    timestamp_ms=at.timestamp_ms,
                )
                for number, at in positions.items()
            ]
        )
        self._say(report=report)

    def say_goodbye(self) -> None:
        """Detach cleanly; all earlier messages have been handled when this returns."""
        self._say(goodbye=pb.AttachRequest.Goodbye())
        self._receiver.join(WITHIN_S)
        assert not self._receiver.is_alive()
        assert self._problem is None, self._problem

    def _say(self, **word: object) -> None:
        self._requests.put(pb.AttachRequest(**word))  # type: ignore[arg-type]

    # What it asks for

    def begin_commit(self, offsets: Mapping[int, int], tenure: int = 0) -> Callable[[], pb.CommitResponse]:
        """Ask for a commit, in whichever tenure it is, or in this one; what is given waits for the answer."""
        request = pb.CommitRequest(
            offsets=[
                pb.PartitionOffset(partition=self._partition(number), offset=offset)
                for number, offset in offsets.items()
            ],
            tenure=pb.Tenure(number=tenure),
        )
        return self._stub.Commit.future(request, timeout=WITHIN_S).result

    def commit(self, offsets: Mapping[int, int], tenure: int = 0) -> pb.CommitResponse:
        """The same, and its answer."""
        return self.begin_commit(offsets, tenure)()

    def positions(self, *numbers: int) -> Mapping[int, int]:
        """Return the positions to read from, once the sidecar knows them."""
        found: dict[int, int] = {}

        def are_known() -> bool:
            request = pb.PositionRequest(partitions=map(self._partition, numbers))
            answer = self._stub.Position(request, timeout=WITHIN_S)
            if any(each.error_code == codes.ILLEGAL_GENERATION for each in answer.offsets):
                # The acknowledgement goes by the stream, and may arrive later.
                return False
            for each in answer.offsets:
                assert each.error_code == codes.NONE, each
                found[each.partition.partition] = each.offset
            return min(found.values()) >= 0

        wait_for(f"{self.name} knows where to begin", are_known, within_s=WITHIN_S)
        return found

    def _partition(self, number: int) -> pb.TopicPartition:
        return pb.TopicPartition(topic=self._topic, partition=number)


def numbers_of(event: Event) -> frozenset[int]:
    """The partitions of an event, all of one topic."""
    return frozenset(partition.partition for partition in event.partitions)
