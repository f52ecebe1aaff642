"""
The embedded log in this process: the replicated state of topics, producers and transactions, and the rows of records.

Called by `rpc.log_service` with requests and by a timer. Each decision is one transaction of the store, offsets of groups
included; its response is sent once the transaction is written, and flushed if the response promises durability.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from typing_extensions import override

from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.log import Log
from rota_coordinator.runtime.environments import LogEnvironment
from rota_coordinator.runtime.log_groups import Groups, LogGroups
from rota_coordinator.runtime.log_machine import LogMachine
from rota_coordinator.runtime.log_rows import LogRows
from rota_coordinator.runtime.overload import Refusal
from rota_coordinator.runtime.replicated_state import Dropped, ReplicatedState, SlotState, Write
from rota_coordinator.store.port import LOG_SLOT, StoreError
from rota_proto.coordinator.v1.records_pb2 import Record
from rota_proto.log.v1 import log_pb2

Reply = TypeVar("Reply")
EXPIRY = "expiry of transactions"
# Delay of a retry, in milliseconds, when a group cannot take part in the end of a transaction yet.
AGAIN_MS = 100


class TopicLog(ReplicatedState[LogMachine]):
    """The shell around the log core. Invariant: consumers see rows in the order of decisions, and stored ones only."""

    def __init__(self, environment: LogEnvironment, groups: Groups) -> None:
        super().__init__(environment.replica(), lambda: LogMachine(Log(environment.config, environment.wall)))
        self.environment = environment
        self.groups = LogGroups(groups)
        self.rows = LogRows(environment, self._follow)

    @property
    def core(self) -> Log:
        """Return the topics, partitions, producers and transactions."""
        return self.machine.log

    @override
    async def _load(self, machine: LogMachine) -> int:
        length = await super()._load(machine)
        await machine.load_rows(self.environment.store)
        return length

    @override
    def _serve(self, handover: bytes) -> None:
        self.core.loaded(self.environment.now_ms())
        self._schedule(EXPIRY)
        self.rows.load(self.machine)

    async def finish(self) -> None:
        """Stop serving after all decisions are durable."""
        await self._drain()
        self.stop()

    @override
    def stop(self) -> None:
        """Stop serving; waiting fetches are woken."""
        super().stop()
        self.rows.clear()

    def check_ready(self) -> None:
        """Raise Refusal while the log is not served."""
        if self.state is not SlotState.READY:
            raise Refusal("UNAVAILABLE", "the log is loading; retry later")

    async def decide(self, decide: Callable[[Log, Effects], Reply], *, flush: bool = True) -> Reply:
        """Run a decision of the core, and return its result once it is written."""
        reply, write = self.start_decision(decide, flush=flush)
        if write is not None:
            await self.wait(write)
        return reply

    def start_decision(
        self, decide: Callable[[Log, Effects], Reply], *, flush: bool = True
    ) -> tuple[Reply, Write | None]:
        """Run a decision of the core; return its result and the write to wait for, if there is one."""
        self.check_ready()
        effects = Effects()
        try:
            reply = self._decide(decide, self.core, effects)
            self._perform(effects, flush=flush)
        except Dropped as broken:
            raise Refusal("UNAVAILABLE", f"{broken}; retry later") from broken
        except StoreError as broken:
            self._drop(str(broken))
            raise Refusal("UNAVAILABLE", f"nothing was written: {broken}") from broken
        return reply, self._last

    async def wait(self, write: Write) -> None:
        """Wait until the write is stored; raise Refusal when its outcome is unknown."""
        try:
            await self._ended(write)
        except StoreError as error:
            raise Refusal("UNAVAILABLE", f"the outcome of the write is unknown: {error}") from error

    def _perform(self, effects: Effects, *, flush: bool) -> None:
        if effects.events or effects.rows or effects.endings:
            self._write(self._put(effects, flush=flush), len(effects.events))
            self._deliver(partial(self.rows.stored, self.core, effects))
        self.rows.decided(self.core, effects)
        if effects.events:
            self._schedule(EXPIRY)

    def _put(self, effects: Effects, *, flush: bool) -> "asyncio.Future[None]":
        """Write group records and log effects atomically; the future completes once they are stored."""
        store = self.environment.store
        if not effects.events and not effects.endings:
            return store.append_rows(self.epoch, effects.rows, flush=flush)
        with store.atomic():
            self.groups.append(effects)
            if effects.rows:
                # The end of a transaction is flushed, and with it all records of the transaction.
                store.append_rows(self.epoch, effects.rows, flush=True)
            records = [Record(log_event=event) for event in effects.events]
            return store.append(LOG_SLOT, self.epoch, records)

    @override
    def _delay_ms(self, key: str) -> int | None:
        at_ms = self.core.wake_at_ms()
        return None if at_ms is None else at_ms - self.environment.now_ms()

    @override
    def _wake(self, key: str) -> None:
        if not self.groups.all_served():
            self._set_timer(key, AGAIN_MS)
            return
        # A failure has been reported, and reloading the log sets the timer again.
        with suppress(Refusal):
            self.start_decision(lambda core, effects: core.expire(self.environment.now_ms(), effects))
        if self.state is SlotState.READY:
            # No transaction may have been due, because the wall clock was set back meanwhile.
            self._schedule(EXPIRY)

    async def delete_records(self, request: log_pb2.DeleteRecordsRequest) -> log_pb2.DeleteRecordsResponse:
        """Handle DeleteRecords: move the log start offsets, then delete the rows before them in the background."""
        reply = await self.decide(lambda core, effects: core.delete_records(request, effects))
        self.rows.deleted(self.core, reply)
        return reply
