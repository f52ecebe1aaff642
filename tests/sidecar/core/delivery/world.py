"""A tiny engine, coordinator, member and application around deliveries; whatever they do, the rules are held."""

from collections.abc import Callable, Collection

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.delivery.delivery import Delivery
from rota_sidecar.core.ledger.batches import Batch, Ordering
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure
from tests.sidecar.core.delivery.driven import with_settings
from tests.sidecar.core.delivery.log import HeldRecords, Log
from tests.sidecar.core.ledger.steps import completed_ahead_of

PARTITIONS = [Partition("orders", number) for number in range(3)]
REVOKE_MS = 20_000
ERRORS = (
    pb.NONE,
    pb.NONE,
    pb.NOT_COORDINATOR,
    pb.REQUEST_TIMED_OUT,
    pb.ILLEGAL_GENERATION,
    pb.OFFSET_METADATA_TOO_LARGE,
)
KEYS: list[bytes | None] = [b"a", b"b", None]
Call = do.FetchCommitted | do.ListOffsets | do.Commit | do.Fetch | do.WriteDeadLetter


class World:
    """World of one delivery core: checks each action; outcomes come when the test draws them."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.delivery = Delivery(config)
        self.rules = config.rules
        self.now_ms = 0
        self.logs = {partition: Log(end=5) for partition in PARTITIONS}
        self.calls: list[Call] = []
        self.held: dict[Partition, Tenure] = {}
        self.tenures = 0
        self.revocations: dict[int, tuple[frozenset[Partition], int]] = {}
        self.numbers = 0
        self.is_away = False
        self.leaves = False
        self.session = 0
        self.is_attached = False
        # It is told of everything that stays, though something else may be going.
        self.is_new = False
        self.commits_itself = False
        self.credit = 0
        self.to_acknowledge: list[do.AssignmentEvent] = []
        self.may_deliver: set[Partition] = set()
        self.records: dict[int, HeldRecords] = {}
        # Of ledgers that are gone: verdicts on these change nothing.
        self.late: dict[int, HeldRecords] = {}
        self.delivery_epochs: dict[Partition, int] = {}
        self.dead_letters: dict[int, int] = {}
        self.look_ups: dict[Partition, int] = {}
        self.finds: dict[Partition, int] = {}
        self.asked: dict[int, on.Event] = {}
        self.answered: set[int] = set()

    # ------------------------------------------------------------------------------------------ steps

    def step(self, event: on.Event) -> list[do.Action]:
        """One event, with all that must hold of what it leads to."""
        actions = list(self.delivery.step(event, self.now_ms))
        for action in actions:
            self._check(action)
        self._check_bounds()
        # The member speaks up at once, as the real one does.
        for action in actions:
            match action:
                case do.ReleasePartitions():
                    self._given_up(action.revocation)
                case do.Leave():
                    assert not self.leaves
                    self.leaves = True
                    self._revoke(frozenset(self.held))
                    self._stand_if_bare()
                case do.Rejoin():
                    assert self.is_away
                    self.is_away = False
                case _:
                    pass
        return actions

    def pass_time(self, milliseconds: int) -> None:
        """With a tick whenever one is wanted."""
        until_ms = self.now_ms + milliseconds
        while (alarm := self.delivery.alarm) is not None and alarm <= until_ms:
            self.now_ms = max(self.now_ms, alarm)
            self.step(on.Tick())
            after = self.delivery.alarm
            assert after is None or after > self.now_ms, "a tick that changes nothing comes for ever"
        self.now_ms = until_ms
        for partitions, deadline_ms in self.revocations.values():
            assert self.now_ms < deadline_ms, f"{partitions} were to be given up by now"

    def _check_bounds(self) -> None:
        config = self.delivery.config
        assert self.credit >= 0, "more was handed out than there was credit for"
        lanes = 0
        for records in self.records.values():
            assert len(records.offsets) <= self.rules.in_flight_max
            in_order = self.rules.ordering is Ordering.PARTITION
            lanes += bool(records.offsets) if in_order else len(records.offsets)
            if self.rules.ordering is Ordering.KEY:
                keys = [key for key in records.offsets.values() if key is not None]
                assert len(keys) == len(set(keys)), "two records of a key are in hand"
        assert lanes <= config.concurrency
        assert set(self.delivery.held) == set(self.held)

    # ------------------------------------------------------------------------------------------ what it does

    def _check(self, action: do.Action) -> None:
        match action:
            case do.FetchCommitted() | do.ListOffsets() | do.Commit() | do.Fetch() | do.WriteDeadLetter():
                self._called(action)
            case do.StopFetching(delivery_epoch=delivery_epoch):
                self.calls = [
                    call
                    for call in self.calls
                    if not isinstance(call, do.Fetch) or call.delivery_epoch != delivery_epoch
                ]
            case do.AssignmentEvent():
                self._on_assignment_event(action)
            case do.Deliver():
                self._delivered(action)
            case do.Answer():
                self._answered(action)
            case _:
                pass

    def _called(self, call: Call) -> None:
        match call:
            case do.Fetch():
                self._check_fetch(call)
            case do.Commit():
                self._check_commit(call)
            case do.WriteDeadLetter():
                self.dead_letters[call.dead_letter] = self.delivery_epochs[call.partition]
            case do.ListOffsets():
                self.look_ups.update(dict.fromkeys(call.partitions, call.request))
            case do.FetchCommitted():
                self.finds.update(dict.fromkeys(call.partitions, call.request))
        self.calls.append(call)

    def _check_fetch(self, fetch: do.Fetch) -> None:
        assert not any(
            isinstance(call, do.Fetch) and call.delivery_epoch == fetch.delivery_epoch for call in self.calls
        )
        log = self.logs[fetch.partition]
        if self.delivery_epochs.get(fetch.partition) != fetch.delivery_epoch:
            assert fetch.delivery_epoch > self.delivery_epochs.get(fetch.partition, 0)
            self.delivery_epochs[fetch.partition] = fetch.delivery_epoch
            # What is still looked up is late by now.
            self.look_ups.pop(fetch.partition, None)
            self.finds.pop(fetch.partition, None)
            assert fetch.offset <= max(log.first_undone, log.start), "it begins behind what is not done"
            log.begin_ledger(fetch.offset)
            self._void([fetch.partition])

    def _void(self, partitions: Collection[Partition]) -> None:
        """Verdicts on what is in hand of these change nothing any more."""
        for number, records in list(self.records.items()):
            if records.partition in partitions:
                self.late[number] = self.records.pop(number)

    def _check_commit(self, commit: do.Commit) -> None:
        for call in self.calls:
            assert not isinstance(call, do.Commit) or not call.offsets.keys() & commit.offsets.keys()
        for partition, offset in commit.offsets.items():
            log = self.logs[partition]
            is_wanted = offset.offset in log.wanted
            assert is_wanted or offset.offset <= max(log.first_undone, log.start), (
                "it commits what is not done"
            )

    def _on_assignment_event(self, notice: do.AssignmentEvent) -> None:
        assert self.is_attached
        if notice.kind is not do.Kind.REVOKED:
            self.to_acknowledge.append(notice)
        if notice.kind is do.Kind.ASSIGNED:
            assert not notice.partitions & self.may_deliver
            going = {each for partitions, _ in self.revocations.values() for each in partitions}
            assert not notice.partitions & going
            assert self.is_new or not going, "what is revoked is settled before anything is assigned"
        else:
            self.may_deliver -= notice.partitions
        if notice.kind is do.Kind.LOST or notice.kind is do.Kind.REVOKED:
            self._void(notice.partitions)

    def _delivered(self, deliver: do.Deliver) -> None:
        assert deliver.partition in self.may_deliver, "it was not acknowledged, or is going, or gone"
        assert self.held[deliver.partition] == deliver.tenure
        assert self.delivery_epochs[deliver.partition] == deliver.delivery_epoch
        records = self.records.setdefault(deliver.delivery_epoch, HeldRecords(deliver.partition))
        log = self.logs[deliver.partition]
        for batch_slice in deliver.dispatch.slices:
            for offset in range(batch_slice.first, batch_slice.end):
                assert offset not in records.offsets, "it is in hand already"
                # A reset may be committed already that is still to be heard of.
                has_verdict = offset in log.done and offset not in log.may_come_again
                assert not has_verdict or offset < max(log.wanted, default=0), "it has its verdict"
                keys = batch_slice.batch.keys
                records.offsets[offset] = None if keys is None else keys[offset - batch_slice.batch.first]
        if self.rules.ordering is Ordering.PARTITION:
            assert list(records.offsets) == sorted(records.offsets), "records came out of order"
        self.credit -= deliver.dispatch.count

    def _answered(self, answer: do.Answer) -> None:
        assert answer.request in self.asked
        assert answer.request not in self.answered, "it was answered twice"
        self.answered.add(answer.request)
        event = self.asked[answer.request]
        if isinstance(event, on.ResetOffsets):
            for partition, error in (answer.errors or {}).items():
                if error == pb.NONE:
                    self.logs[partition].decide_below(event.offsets[partition])
                    self._void([partition])

    # ------------------------------------------------------------------------------------------ the member

    def assign(self, partitions: frozenset[Partition]) -> None:
        if self.is_away or self.leaves or self.revocations:
            return
        partitions -= self.held.keys()
        self.tenures += 1
        tenure = Tenure(self.tenures, "me", self.tenures, 1)
        self.held.update(dict.fromkeys(partitions, tenure))
        for partition in partitions:
            self.logs[partition].begin_tenure()
        self.step(on.Assigned(tenure, partitions))

    def revoke(self, partitions: frozenset[Partition]) -> None:
        partitions &= self.held.keys()
        if partitions and not self.revocations and not self.leaves:
            self._revoke(partitions)

    def _revoke(self, partitions: frozenset[Partition]) -> None:
        self.numbers += 1
        # What is to leave is one revocation, whatever was under way.
        self.revocations = {self.numbers: (partitions, self.now_ms + REVOKE_MS)}
        self.may_deliver -= partitions
        self.step(on.Revoke(self.numbers, partitions, self.now_ms + REVOKE_MS))

    def _given_up(self, number: int) -> None:
        if number in self.revocations:
            partitions, deadline_ms = self.revocations.pop(number)
            assert self.now_ms <= deadline_ms
            self._drop(partitions)
            self.step(on.Revoked(partitions))
            self._stand_if_bare()

    def lose(self) -> None:
        partitions = frozenset(self.held)
        if partitions:
            self.revocations.clear()
            self._drop(partitions)
            self.step(on.Lost(partitions, "it was expelled"))
            self._stand_if_bare()

    def _drop(self, partitions: frozenset[Partition]) -> None:
        self.may_deliver -= partitions
        for partition in partitions:
            del self.held[partition]

    def _stand_if_bare(self) -> None:
        if self.leaves and not self.held:
            self.leaves, self.is_away = False, True
            self.step(on.LeftGroup())

    # ------------------------------------------------------------------------------------------ the engine

    def answer(self, partition_state: int, error: pb.ErrorCode.ValueType = pb.NONE) -> None:
        """One of the calls under way is answered."""
        if not self.calls:
            return
        call = self.calls.pop(partition_state % len(self.calls))
        match call:
            case do.FetchCommitted():
                self._find(call, error)
            case do.ListOffsets():
                self._list_offsets(call, error)
            case do.Commit():
                self._commit(call, error)
            case do.Fetch():
                self._fetch(call)
            case do.WriteDeadLetter():
                self._write(call, error)

    def _find(self, call: do.FetchCommitted, error: pb.ErrorCode.ValueType) -> None:
        stored = {partition: self.logs[partition].stored for partition in call.partitions}
        for partition, each in stored.items():
            if self.finds.get(partition) == call.request and error == pb.NONE:
                self.logs[partition].found = completed_ahead_of(each.metadata)
        self.step(on.CommittedFetched(call.request, error, stored if error == pb.NONE else {}))

    def _list_offsets(self, call: do.ListOffsets, error: pb.ErrorCode.ValueType) -> None:
        bounds = {each: on.Bounds(self.logs[each].start, self.logs[each].end) for each in call.partitions}
        for partition, bound in bounds.items():
            if self.look_ups.get(partition) == call.request:
                # Whoever begins there has decided about everything before it.
                self.logs[partition].done |= set(range(bound.start))
                self.logs[partition].found = set()
        self.step(on.OffsetsListed(call.request, bounds if error == pb.NONE else {}, "not now"))

    def _commit(self, commit: do.Commit, error: pb.ErrorCode.ValueType) -> None:
        errors: dict[Partition, pb.ErrorCode.ValueType] = {}
        for partition, offset in commit.offsets.items():
            held = self.held.get(partition)
            errors[partition] = error
            if held is None or held.number != offset.tenure:
                errors[partition] = pb.ILLEGAL_GENERATION
            elif error in (pb.NONE, pb.REQUEST_TIMED_OUT):
                log = self.logs[partition]
                log.stored = _stored(offset)
                if not log.is_sought and offset.offset > max(log.first_undone, log.start):
                    # A reset, of which the answer may be lost.
                    log.decide_below(offset.offset)
                # What was sent before the seek says nothing of it.
                log.is_sought = log.is_sought and offset.offset > log.first_undone
        self.step(on.Committed(commit.request, errors))

    def _fetch(self, fetch: do.Fetch) -> None:
        log = self.logs[fetch.partition]
        if not log.start <= fetch.offset <= log.end:
            self.step(
                on.ReadFailed(fetch.delivery_epoch, on.FetchError.OUT_OF_RANGE, "it is not there any more")
            )
            return
        if fetch.offset == log.end:
            self.calls.append(fetch)
            return
        end = min(log.end, fetch.offset + 7)
        keys = None
        if self.rules.ordering is Ordering.KEY:
            keys = [KEYS[offset % 3] for offset in range(fetch.offset, end)]
        batch = Batch(fetch.offset, end - fetch.offset, 10 * (end - fetch.offset), object(), keys)
        self.step(on.Read(fetch.delivery_epoch, [batch], end, on.Bounds(log.start, log.end)))

    def _write(self, dead_letter: do.WriteDeadLetter, error: pb.ErrorCode.ValueType) -> None:
        if error != pb.NONE:
            self.step(on.DeadLetterWritten(dead_letter.dead_letter, "not now"))
            return
        offset = dead_letter.batch_slice.first
        # One that was given out in another ledger counts for nothing here.
        if (
            dead_letter.partition in self.held
            and self.dead_letters[dead_letter.dead_letter] == self.delivery_epochs[dead_letter.partition]
        ):
            self.logs[dead_letter.partition].done.add(offset)
        self.step(on.DeadLetterWritten(dead_letter.dead_letter))

    def trim(self, partition: Partition, offset: int) -> None:
        """Old records are deleted, done or not."""
        log = self.logs[partition]
        log.start = max(log.start, min(offset, log.end))

    # ------------------------------------------------------------------------------------------ the application

    def attach(self, *, commits_itself: bool) -> None:
        if not self.is_attached:
            self.session += 1
            self.is_attached, self.commits_itself, self.credit = True, commits_itself, 0
            self.is_new = True
            self.step(
                on.Attached(self.session, commits_itself=commits_itself, takes_many=self.rules.takes_many)
            )
            self.is_new = False

    def detach(self, *, clean: bool) -> None:
        if self.is_attached:
            self.is_attached = False
            self.to_acknowledge.clear()
            self.may_deliver.clear()
            self.records.clear()
            self.late.clear()
            self.step(on.Detached(self.session, clean))

    def give_credit(self, records: int) -> None:
        if self.is_attached:
            self.credit += records
            self.step(on.Credit(records))

    def acknowledge(self) -> None:
        """The oldest event that is not."""
        if not self.to_acknowledge:
            return
        notice = self.to_acknowledge.pop(0)
        if notice.kind is do.Kind.ASSIGNED:
            going = {each for partitions, _ in self.revocations.values() for each in partitions}
            mine = {each for each in notice.partitions if self.held.get(each) == notice.tenure}
            self.may_deliver |= mine - going
        if notice.kind is do.Kind.REVOKING:
            for number, records in list(self.records.items()):
                if records.partition in notice.partitions:
                    del self.records[number]
        self.step(on.Acknowledged(notice.event_id))

    def judge(self, which: int, verdict: Verdict, how_many: int = 1) -> None:
        """From the first on that is in hand of one ledger."""
        records = {number: each for number, each in (self.records | self.late).items() if each.offsets}
        if not records:
            return
        number = sorted(records)[which % len(records)]
        mine = records[number]
        offsets = sorted(mine.offsets)
        partition_state = which % len(offsets)
        first = last = offsets[partition_state]
        if verdict in (Verdict.ACK, Verdict.SKIP):
            while last + 1 in mine.offsets and last - first + 1 < how_many:
                last += 1
        self._judge(number, mine, first, last, verdict)

    def _judge(self, number: int, mine: HeldRecords, first: int, last: int, verdict: Verdict) -> None:
        is_late = number not in self.records
        for offset in range(first, last + 1):
            mine.offsets.pop(offset, None)
        if verdict is Verdict.RETRY and self.rules.ordering is Ordering.PARTITION:
            for offset in [offset for offset in mine.offsets if offset > first]:
                del mine.offsets[offset]
        log = self.logs[mine.partition]
        if verdict in (Verdict.ACK, Verdict.SKIP) and not is_late:
            log.done |= set(range(first, last + 1))
        judgement = on.Judgement(number, mine.partition, first, last, verdict)
        actions = self.delivery_of(judgement)
        kinds = {type(action) for action in actions}
        assert do.Refuse not in kinds
        assert (do.Settled in kinds) != is_late

    def delivery_of(self, judgement: on.Judgement) -> list[do.Action]:
        """One verdict."""
        return self.step(on.Judged([judgement]))

    # ------------------------------------------------------------------------------------------ questions

    def ask(self, make: Callable[[int], on.Event]) -> None:
        self.numbers += 1
        event = make(self.numbers)
        self.asked[self.numbers] = event
        self.step(event)

    def commit_asked(self, partition: Partition, offset: int | None) -> None:
        """As far as verdicts go, or up to an offset."""
        if not self.is_attached:
            return
        if offset is None:
            self.ask(lambda request: on.CommitRequested(request, None))
            return
        log = self.logs[partition]
        offset = max(log.start, min(offset, log.end))
        if partition in self.held:
            log.wanted.add(offset)
            log.done |= set(range(offset))
            for records in self.records.values():
                if records.partition == partition:
                    records.offsets = {each: key for each, key in records.offsets.items() if each >= offset}
        self.ask(lambda request: on.CommitRequested(request, {partition: on.RequestedOffset(offset)}))

    def seek(self, partition: Partition, offset: int) -> None:
        log = self.logs[partition]
        if not self.is_attached or partition not in self.held:
            return
        offset = max(log.start, min(offset, log.end))
        log.decide_below(offset)
        log.is_sought = True
        for number, records in list(self.records.items()):
            if records.partition == partition:
                # The application drops what is void, and says nothing of it.
                del self.records[number]
        self.ask(lambda request: on.SeekRequested(request, {partition: offset}))

    def reset(self, partition: Partition, offset: int) -> None:
        log = self.logs[partition]
        offset = max(log.start, min(offset, log.end))
        log.wanted.add(offset)
        self.ask(lambda request: on.ResetOffsets(request, self.tenures, {partition: offset}))

    def pause(self, partition: Partition, *, paused: bool) -> None:
        kind = on.PauseRequested if paused else on.ResumeRequested
        self.ask(lambda request: kind(request, frozenset([partition])))

    def drain(self, seconds: int) -> None:
        # As the sidecar of a static member drains, that of a dynamic one, and that of a static one that Fleet has named.
        serves_until_ms = self.now_ms + 300 * seconds if seconds % 4 == 3 else None
        self.step(on.Drain(self.now_ms + 1_000 * seconds, seconds % 2 == 1, serves_until_ms))

    def undrain(self) -> None:
        self.step(on.Undrain())

    def configure(self, **settings: object) -> None:
        self.step(on.Configure(with_settings(self.delivery.config, **settings)))


def _stored(offset: Offset) -> on.Stored:
    return on.Stored(offset.offset, offset.metadata)
