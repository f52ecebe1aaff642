"""The runtime of replicated states: what is delivered when, over a store whose writes end when the test says so."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

import pytest
from typing_extensions import override

from rota_coordinator.runtime.replicated_state import Dropped, Replica, ReplicatedState, SlotState
from rota_coordinator.store.port import Claim, SlotLost, Store, StoreError, StoreTakenOver
from rota_proto.coordinator.v1.records_pb2 import OffsetRemoved, Record

HANDOVER = b"from the previous owner"


def record(text: str) -> Record:
    return Record(offset_removed=OffsetRemoved(group_id=text))


class Texts:
    """A state machine: the texts of its records, of which a snapshot has the last one."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def replay(self, record: Record) -> None:
        self.said.append(record.offset_removed.group_id)

    def snapshot(self) -> Sequence[Record]:
        return [record(text) for text in self.said[-1:]]


class ManualStore(Store):
    """A store whose log is read at once, and whose writes wait for the test."""

    slots = 1

    def __init__(self, *stored: str) -> None:
        self.log = [record(text) for text in stored]
        self.epoch = 0
        self.claim_error: StoreError | None = None
        self.writes: list[asyncio.Future[None]] = []
        self.snapshots: list[Sequence[Record]] = []

    @override
    async def claim(self, slot: int) -> Claim:
        if self.claim_error is not None:
            raise self.claim_error
        self.epoch += 1
        return Claim(self.epoch, HANDOVER)

    @override
    async def load(self, slot: int) -> Sequence[Record]:
        await asyncio.sleep(0)
        return list(self.log)

    @override
    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]

    @override
    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        self.snapshots.append(snapshot)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    @override
    async def close(self) -> None:
        """Nothing is held."""


class TextState(ReplicatedState[Texts]):
    """A state whose decisions add a text, and which delivers texts to a list."""

    def __init__(self, store: ManualStore, above: int = 100) -> None:
        self.store = store
        self.reports: list[str] = []
        self.faults: list[Exception] = []
        self.delivered: list[str] = []
        self.served: list[bytes] = []
        self.valid = True
        # Delay of the timer of each key, in ms, and the events of timers.
        self.delays: dict[str, int | None] = {}
        self.timers: list[str] = []
        replica = Replica(
            store,
            0,
            "texts",
            self.reports.append,
            self.faults.append,
            above,
            above,
            may_serve=lambda: self.valid,
        )
        super().__init__(replica, Texts)

    @override
    def _serve(self, handover: bytes) -> None:
        self.served.append(handover)

    def say(self, text: str) -> None:
        """Decide a record, and deliver its text."""
        self._decide(lambda: self.machine.replay(record(text)))
        self._write(self.store.append(0, self.epoch, [record(text)]), 1)
        self.repeat(text)

    def repeat(self, text: str, then: Callable[[], object] = lambda: None) -> None:
        """Deliver a text without a record."""

        def delivery() -> None:
            self.delivered.append(text)
            then()

        self._deliver(delivery)

    def break_off(self) -> None:
        """Decide with an exception."""
        self._decide(partial(int, "no number"))

    def plan(self, key: str, delay_ms: int | None) -> None:
        """Change the deadline of a key."""
        self.delays[key] = delay_ms
        self._schedule(key)

    @override
    def _delay_ms(self, key: str) -> int | None:
        self.timers.append(f"{key} is set")
        return self.delays[key]

    @override
    def _wake(self, key: str) -> None:
        self.timers.append(f"{key} is due")

    async def stored(self) -> None:
        """Wait for the latest write."""
        assert self._last is not None
        await self._ended(self._last)

    async def drain(self) -> bool:
        return await self._drain()


def play(story: Callable[[TextState], Coroutine[None, None, None]], *stored: str, above: int = 100) -> None:
    """Run a story with a state that is served."""

    async def body() -> None:
        state = TextState(ManualStore(*stored), above)
        await state.start()
        await story(state)

    asyncio.run(body())


async def turns() -> None:
    """Let the callbacks run, and a load."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_state_is_served_once_its_log_is_replayed() -> None:
    async def story(state: TextState) -> None:
        assert (state.state, state.epoch, state.machine.said) == (SlotState.READY, 1, ["a", "b"])
        assert state.served == [HANDOVER]

    play(story, "a", "b")


def test_deliveries_keep_the_order_of_decisions_and_wait_for_all_earlier_writes() -> None:
    async def story(state: TextState) -> None:
        state.repeat("at once")
        assert state.delivered == ["at once"]
        state.say("a")
        state.repeat("after a")
        state.say("b")
        first, second = state.store.writes
        first.set_result(None)
        # The write has ended, and its deliveries have not run: a later one must not overtake them.
        state.repeat("after b")
        await turns()
        assert state.delivered == ["at once", "a", "after a"]
        second.set_result(None)
        state.repeat("last")
        await turns()
        assert state.delivered == ["at once", "a", "after a", "b", "after b", "last"]
        assert state.unfinished_append is None

    play(story)


def test_what_a_delivery_decides_is_delivered_after_the_others_of_its_write() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        state.repeat("b", then=lambda: state.repeat("from b"))
        state.repeat("c")
        state.store.writes[0].set_result(None)
        await turns()
        assert state.delivered == ["a", "b", "c", "from b"]

    play(story)


def test_after_a_write_with_unknown_outcome_nothing_is_delivered_before_the_log_is_loaded_again() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        state.say("b")
        first, second = state.store.writes
        first.set_exception(StoreError("no answer"))
        second.set_result(None)
        state.repeat("from memory")
        await turns()
        assert state.delivered == []
        assert state.reports == ["texts: no answer; reloading it"]
        assert (state.state, state.epoch, state.machine.said) == (SlotState.READY, 2, ["stored"])

    play(story, "stored")


def test_a_load_that_fails_after_a_drop_is_left_to_the_next_start() -> None:
    async def story(state: TextState) -> None:
        state.store.claim_error = StoreError("away")
        state.say("a")
        state.store.writes[0].set_exception(StoreError("no answer"))
        await turns()
        assert [state.state] == [SlotState.DOWN]
        state.store.claim_error = None
        await state.start()
        assert [state.state] == [SlotState.READY]

    play(story)


@pytest.mark.parametrize("error", [SlotLost("another's"), StoreTakenOver("another's")])
def test_a_log_that_another_process_has_claimed_is_not_claimed_again(error: StoreError) -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        state.store.writes[0].set_exception(error)
        await turns()
        assert (state.state, state.store.epoch, state.delivered) == (SlotState.DOWN, 1, [])
        assert state.reports == ["texts: another's; no longer serving it"]

    play(story)


def test_a_decision_that_breaks_off_drops_the_state() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        with pytest.raises(Dropped):
            state.break_off()
        state.store.writes[0].set_result(None)
        await turns()
        assert state.delivered == []
        assert [type(fault) for fault in state.faults] == [ValueError]
        assert state.reports == ["texts: a decision failed (ValueError); reloading it"]
        assert state.epoch == 2

    play(story)


def test_what_was_begun_before_a_stop_is_not_delivered_after_the_next_start() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        state.stop()
        await state.start()
        state.store.writes[0].set_result(None)
        await turns()
        state.repeat("b")
        assert state.delivered == ["b"]

    play(story)


def test_a_stop_while_the_log_is_loaded_cancels_the_start() -> None:
    async def body() -> None:
        state = TextState(ManualStore("a"))
        starting = asyncio.ensure_future(state.start())
        await asyncio.sleep(0)
        assert state.state is SlotState.CATCH_UP
        state.stop()
        await starting
        assert (state.state, state.served) == (SlotState.DOWN, [])

    asyncio.run(body())


def test_a_drained_state_has_delivered_all_decisions() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        draining = asyncio.ensure_future(state.drain())
        await turns()
        assert not draining.done()
        assert state.state is SlotState.DOWN
        state.store.writes[0].set_result(None)
        assert await draining
        assert state.delivered == ["a"]
        assert not await state.drain()

    play(story)


def test_a_drain_whose_write_fails_is_no_drain() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        draining = asyncio.ensure_future(state.drain())
        await turns()
        state.store.writes[0].set_exception(StoreError("no answer"))
        assert not await draining

    play(story)


def test_without_a_valid_lease_nothing_is_delivered() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        state.repeat("b", then=lambda: setattr(state, "valid", False))
        state.repeat("c")
        state.store.writes[0].set_result(None)
        await turns()
        assert state.delivered == ["a", "b"]
        assert state.state is SlotState.DOWN

    play(story)


def test_a_log_is_compacted_on_loading_and_after_the_write_that_makes_it_too_long() -> None:
    async def story(state: TextState) -> None:
        assert [len(snapshot) for snapshot in state.store.snapshots] == [1]
        for number in range(8):
            state.say(f"{number}")
            assert len(state.store.snapshots) == 1
        for write in state.store.writes:
            write.set_result(None)
        await turns()
        # With the first write that ends: the others, which are in the snapshot, are in the store's queue before it.
        assert state.store.snapshots[1:] == [[record("7")]]

    play(story, *map(str, range(6)), above=3)


def test_a_delivery_that_breaks_off_drops_the_state() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        state.repeat("b", then=partial(dict[str, str]().__getitem__, "missing"))
        state.repeat("c")
        state.store.writes[0].set_result(None)
        await turns()
        assert state.delivered == ["a", "b"]
        assert state.reports == ["texts: a delivery failed (KeyError); reloading it"]
        assert (state.state, state.epoch) == (SlotState.READY, 2)

    play(story)


def test_a_timer_is_set_once_in_a_turn_for_the_latest_deadline() -> None:
    async def story(state: TextState) -> None:
        state.plan("a", 60_000)
        state.plan("b", 0)
        state.plan("a", None)
        state.plan("a", 0)
        assert state.timers == []
        async with asyncio.timeout(10):
            while len(state.timers) < 4:
                await asyncio.sleep(0)
        assert state.timers == ["a is set", "b is set", "a is due", "b is due"]

    play(story)


def test_a_stop_takes_back_timers_that_are_set_and_that_are_to_be_set() -> None:
    async def story(state: TextState) -> None:
        state.plan("a", 0)
        await asyncio.sleep(0)
        state.plan("b", 0)
        state.stop()
        await state.start()
        state.plan("c", 0)
        async with asyncio.timeout(10):
            while "c is due" not in state.timers:
                await asyncio.sleep(0)
        assert state.timers == ["a is set", "c is set", "c is due"]

    play(story)


def test_who_waits_for_a_write_goes_on_after_its_deliveries_and_gets_its_error() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        first = asyncio.ensure_future(state.stored())
        await turns()
        state.say("b")
        second = asyncio.ensure_future(state.stored())
        await turns()
        state.store.writes[0].set_result(None)
        await first
        assert state.delivered == ["a"]
        state.stop()
        state.store.writes[1].set_exception(StoreError("no answer"))
        with pytest.raises(StoreError, match="no answer"):
            await second

    play(story)


def test_a_write_that_has_failed_fails_who_waits_before_the_state_is_dropped() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        state.store.writes[0].set_exception(StoreError("no answer"))
        with pytest.raises(StoreError, match="no answer"):
            await state.stored()
        assert state.reports == []

    play(story)


def test_who_is_cancelled_while_it_waits_does_not_cancel_the_write() -> None:
    async def story(state: TextState) -> None:
        state.say("a")
        waiting = asyncio.ensure_future(state.stored())
        await turns()
        waiting.cancel()
        await turns()
        state.store.writes[0].set_result(None)
        await turns()
        assert waiting.cancelled()
        assert state.delivered == ["a"]

    play(story)
