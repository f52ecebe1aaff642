"""Deliveries in hand: events go in one by one, and each outcome that they wait for is given, or not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.delivery.delivery import Delivery
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure

GROUP = "orders-group"
INTERVAL_MS = 5_000
PROCESSING_MS = 60_000
NOTHING_STORED = on.Stored(-1, "")
Kind = TypeVar("Kind")
Error: TypeAlias = pb.ErrorCode.ValueType


def some(*numbers: int, topic: str = "orders") -> frozenset[Partition]:
    """Return partitions of one topic, by their numbers."""
    return frozenset(Partition(topic, number) for number in numbers)


def one(number: int = 0, topic: str = "orders") -> Partition:
    """Return one partition, by its number."""
    return Partition(topic, number)


def batch(first: int, count: int, keys: Sequence[bytes | None] | None = None) -> Batch:
    """Records of ten bytes each."""
    return Batch(first, count, 10 * count, object(), keys)


def with_settings(config: DeliveryConfig, **settings: object) -> DeliveryConfig:
    """The same but for these."""
    return replace(config, **settings)  # type: ignore[arg-type]


class Driven:
    """Answers nothing by itself."""

    def __init__(self, **settings: object) -> None:
        usual = DeliveryConfig(GROUP, commit_interval_ms=INTERVAL_MS, processing_timeout_ms=PROCESSING_MS)
        self.delivery = Delivery(with_settings(usual, **settings))
        self.now_ms = 1_000_000
        self.done: list[do.Action] = []
        self.tenures = 0
        self.revocations = 0
        self.sessions = 0
        self.asked = 0

    def step(self, event: on.Event) -> list[do.Action]:
        """One event; what it led to."""
        actions = list(self.delivery.step(event, self.now_ms))
        self.done += actions
        return actions

    def pass_time(self, milliseconds: int) -> list[do.Action]:
        """Let time go by, with a tick whenever one is wanted."""
        until_ms, done = self.now_ms + milliseconds, []
        while (alarm := self.delivery.alarm) is not None and alarm <= until_ms:
            self.now_ms = max(self.now_ms, alarm)
            done += self.step(on.Tick())
            after = self.delivery.alarm
            assert after is None or after > self.now_ms, "a tick that changes nothing comes for ever"
        self.now_ms = max(self.now_ms, until_ms)
        return done

    def all(self, kind: type[Kind]) -> list[Kind]:
        """All actions of a kind so far."""
        return [action for action in self.done if isinstance(action, kind)]

    def last(self, kind: type[Kind]) -> Kind:
        """The last action of a kind."""
        return self.all(kind)[-1]

    # The member

    def assign(self, *numbers: int, topic: str = "orders", is_manual: bool = False) -> list[do.Action]:
        self.tenures += 1
        tenure = Tenure(self.tenures, "" if is_manual else "me", -1 if is_manual else self.tenures, 7)
        return self.step(on.Assigned(tenure, some(*numbers, topic=topic), is_manual))

    def revoke(self, *numbers: int, within_ms: int = 30_000) -> list[do.Action]:
        self.revocations += 1
        return self.step(on.Revoke(self.revocations, some(*numbers), self.now_ms + within_ms))

    def revoked(self, *numbers: int) -> list[do.Action]:
        return self.step(on.Revoked(some(*numbers)))

    def lose(self, *numbers: int, reason: str = "expelled") -> list[do.Action]:
        return self.step(on.Lost(some(*numbers), reason))

    # The engine

    def find(
        self, offset: int = 0, *, error: Error = pb.NONE, metadata: str = "", each: Error = pb.NONE
    ) -> list[do.Action]:
        """The same is committed for all that is looked up; -1 = nothing."""
        asked = self.last(do.FetchCommitted)
        stored = on.Stored(offset, metadata, error=each)
        return self.step(on.CommittedFetched(asked.request, error, dict.fromkeys(asked.partitions, stored)))

    def list_offsets(self, start: int = 0, end: int = 1_000) -> list[do.Action]:
        asked = self.last(do.ListOffsets)
        return self.step(
            on.OffsetsListed(asked.request, dict.fromkeys(asked.partitions, on.Bounds(start, end)))
        )

    def fetch_of(self, number: int = 0, topic: str = "orders") -> do.Fetch:
        """The last fetch of this partition."""
        return [each for each in self.all(do.Fetch) if each.partition == Partition(topic, number)][-1]

    def read(
        self, count: int, number: int = 0, *, keys: Sequence[bytes | None] | None = None
    ) -> list[do.Action]:
        """So many records come, in one batch, from where it wanted to read."""
        fetch = self.fetch_of(number)
        batches = [batch(fetch.offset, count, keys)] if count else []
        end = fetch.offset + count
        return self.step(on.Read(fetch.delivery_epoch, batches, end, on.Bounds(0, end)))

    def fail_read(self, fetch_error: on.FetchError, number: int = 0) -> list[do.Action]:
        return self.step(on.ReadFailed(self.fetch_of(number).delivery_epoch, fetch_error, "it says so"))

    def answer_commit(
        self, error: Error = pb.NONE, errors: dict[Partition, Error] | None = None
    ) -> list[do.Action]:
        commit = self.last(do.Commit)
        return self.step(on.Committed(commit.request, dict.fromkeys(commit.offsets, error) | (errors or {})))

    # The application

    def attach(
        self,
        *,
        credit: int = 0,
        commits_itself: bool = False,
        reads_itself: bool = False,
        takes_many: bool = True,
        takes_commits: bool = False,
    ) -> list[do.Action]:
        self.sessions += 1
        actions = self.step(
            on.Attached(self.sessions, commits_itself, reads_itself, takes_many, takes_commits)
        )
        return actions + (self.credit(credit) if credit else [])

    def detach(self, *, clean: bool = False) -> list[do.Action]:
        return self.step(on.Detached(self.sessions, clean))

    def credit(self, records: int) -> list[do.Action]:
        return self.step(on.Credit(records))

    def acknowledge(self, event_id: int | None = None) -> list[do.Action]:
        """Acknowledge this event, or the last one that the application was notified of."""
        return self.step(
            on.Acknowledged(self.last(do.AssignmentEvent).event_id if event_id is None else event_id)
        )

    def judge(
        self,
        first: int,
        last: int | None = None,
        verdict: Verdict = Verdict.ACK,
        number: int = 0,
        *,
        retry_after_ms: int | None = None,
        delivery_epoch: int | None = None,
    ) -> list[do.Action]:
        """Of the ledger of which was handed out last."""
        if delivery_epoch is None:
            delivery_epoch = [
                each.delivery_epoch for each in self.all(do.Deliver) if each.partition == one(number)
            ][-1]
        end = first if last is None else last
        judgement = on.Judgement(delivery_epoch, one(number), first, end, verdict, retry_after_ms, "because")
        return self.step(on.Judged([judgement]))

    def commit_asked(
        self, offsets: Mapping[int, int] | None = None, tenure: int = 0, metadata: str = ""
    ) -> int:
        """The number of the question."""
        self.asked += 1
        asked = None
        if offsets is not None:
            asked = {one(number): on.RequestedOffset(offset, metadata) for number, offset in offsets.items()}
        self.step(on.CommitRequested(self.asked, asked, tenure))
        return self.asked

    def seek(self, offset: int, *numbers: int) -> int:
        """The number of the question."""
        self.asked += 1
        self.step(on.SeekRequested(self.asked, dict.fromkeys(some(*numbers), offset)))
        return self.asked

    def answers(self, request: int) -> list[do.Answer]:
        return [answer for answer in self.all(do.Answer) if answer.request == request]

    # Several of these in one go

    def begin(self, *numbers: int, credit: int = 1_000, offset: int = 0, **traits: bool) -> "Driven":
        """Attached, assigned, begun at this offset, with the mark committed that precedes the first record."""
        self.attach(**traits)
        self.assign(*numbers)
        self.acknowledge()
        self.find(offset)
        if self.delivery.config.commit_mode.value in ("periodic", "sync") and not (
            traits.get("commits_itself") or traits.get("reads_itself")
        ):
            self.answer_commit()
        self.credit(credit)
        return self


def names(actions: Iterable[do.Action]) -> list[str]:
    """Return the names of actions."""
    return [
        action.kind.name if isinstance(action, do.AssignmentEvent) else type(action).__name__
        for action in actions
    ]


def delivered(actions: Iterable[do.Action]) -> list[tuple[int, int, int]]:
    """Partition, first offset, offset after the last, of all pieces that were handed out."""
    return [
        (action.partition.number, batch_slice.first, batch_slice.end)
        for action in actions
        if isinstance(action, do.Deliver)
        for batch_slice in action.dispatch.slices
    ]


def committed(action: do.Commit) -> dict[int, int]:
    """Offsets by the number of the partition."""
    return {partition.number: offset.offset for partition, offset in action.offsets.items()}


def offset_of(action: do.Commit, number: int = 0) -> Offset:
    """Of this partition."""
    return action.offsets[one(number)]
