"""
The transaction of a transactional id: every state meets every input.

`late` inputs carry the identity that the producer had before its present one: words that come too late, or of a
producer that was replaced.
"""

import enum
from typing import TypeAlias

import pytest

from rota_coordinator.core.log.config import LogConfig
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from tests.log.engine import COPIER, TIMEOUT_MS, Engine, Producer

ErrorCode: TypeAlias = codes.ErrorCode.ValueType
NONE = codes.NONE
MAPPING = codes.INVALID_PRODUCER_ID_MAPPING
EPOCH = codes.INVALID_PRODUCER_EPOCH
FENCED = codes.PRODUCER_FENCED
TXN_STATE = codes.INVALID_TXN_STATE
WEEK_MS = LogConfig().producers_expire_ms


class State(enum.Enum):
    """State of a transactional id in the log."""

    UNKNOWN = "never made, or forgotten"
    IDLE = "no transaction; the last one, if any, was not ended by its producer"
    OPEN = "open"
    COMMITTED = "no transaction; its producer committed the last one"
    ABORTED = "no transaction; its producer aborted the last one"
    OPEN_AGAIN = "open; its producer committed the last one"


class Input(enum.Enum):
    """Input of the state machine."""

    PRODUCE = "produce"
    PLAIN = "produce without transaction"
    ADD_GROUP = "add a group"
    OFFSETS = "commit offsets of a group"
    COMMIT = "commit"
    REFUSED = "commit, which a group refuses"
    ABORT = "abort"
    LATE_PRODUCE = "produce, late"
    LATE_ADD_GROUP = "add a group, late"
    LATE_OFFSETS = "commit offsets, late"
    LATE_COMMIT = "commit, late"
    LATE_ABORT = "abort, late"
    INIT = "become its producer"
    TIMEOUT = "the transaction's time is up"
    WEEK = "nobody used it for a week"


I, S = Input, State
# What happens in most states when nothing is open.
CLOSED: dict[Input, tuple[ErrorCode, State]] = {
    I.PRODUCE: (NONE, S.OPEN),
    I.ADD_GROUP: (NONE, S.OPEN),
    I.COMMIT: (TXN_STATE, S.IDLE),
    I.REFUSED: (TXN_STATE, S.IDLE),
    I.ABORT: (NONE, S.ABORTED),
    I.INIT: (NONE, S.IDLE),
    I.WEEK: (NONE, S.UNKNOWN),
}
LATE: dict[Input, ErrorCode] = {
    I.LATE_PRODUCE: EPOCH,
    I.LATE_ADD_GROUP: FENCED,
    I.LATE_OFFSETS: FENCED,
    I.LATE_COMMIT: FENCED,
    I.LATE_ABORT: FENCED,
}
TABLE: dict[State, dict[Input, tuple[ErrorCode, State]]] = {
    S.UNKNOWN: {
        **dict.fromkeys(Input, (MAPPING, S.UNKNOWN)),
        # As of any producer that is idempotent only: the id was given to somebody once.
        I.PLAIN: (NONE, S.UNKNOWN),
        I.INIT: (NONE, S.IDLE),
        I.TIMEOUT: (NONE, S.UNKNOWN),
        I.WEEK: (NONE, S.UNKNOWN),
    },
    S.IDLE: {
        **CLOSED,
        **{each: (error, S.IDLE) for each, error in LATE.items()},
        I.PLAIN: (TXN_STATE, S.IDLE),
        I.OFFSETS: (TXN_STATE, S.IDLE),
        I.TIMEOUT: (NONE, S.IDLE),
    },
    S.COMMITTED: {
        **CLOSED,
        **{each: (error, S.COMMITTED) for each, error in LATE.items()},
        I.PRODUCE: (NONE, S.OPEN_AGAIN),
        I.ADD_GROUP: (NONE, S.OPEN_AGAIN),
        I.PLAIN: (TXN_STATE, S.COMMITTED),
        I.OFFSETS: (TXN_STATE, S.COMMITTED),
        I.COMMIT: (TXN_STATE, S.COMMITTED),
        I.REFUSED: (TXN_STATE, S.COMMITTED),
        I.LATE_COMMIT: (NONE, S.COMMITTED),
        I.LATE_ABORT: (TXN_STATE, S.COMMITTED),
        I.TIMEOUT: (NONE, S.COMMITTED),
    },
    S.ABORTED: {
        **CLOSED,
        **{each: (error, S.ABORTED) for each, error in LATE.items()},
        I.PLAIN: (TXN_STATE, S.ABORTED),
        I.OFFSETS: (TXN_STATE, S.ABORTED),
        I.COMMIT: (TXN_STATE, S.ABORTED),
        I.REFUSED: (TXN_STATE, S.ABORTED),
        I.LATE_COMMIT: (TXN_STATE, S.ABORTED),
        I.LATE_ABORT: (NONE, S.ABORTED),
        I.TIMEOUT: (NONE, S.ABORTED),
    },
    S.OPEN: {
        **{each: (error, S.OPEN) for each, error in LATE.items()},
        I.PRODUCE: (NONE, S.OPEN),
        I.PLAIN: (TXN_STATE, S.OPEN),
        I.ADD_GROUP: (NONE, S.OPEN),
        I.OFFSETS: (NONE, S.OPEN),
        I.COMMIT: (NONE, S.COMMITTED),
        I.REFUSED: (codes.ILLEGAL_GENERATION, S.ABORTED),
        I.ABORT: (NONE, S.ABORTED),
        I.INIT: (NONE, S.IDLE),
        I.TIMEOUT: (NONE, S.IDLE),
        # Its own time is up much earlier.
        I.WEEK: (NONE, S.IDLE),
    },
}
TABLE[S.OPEN_AGAIN] = {
    **{each: (error, S.OPEN_AGAIN if after is S.OPEN else after) for each, (error, after) in TABLE[S.OPEN].items()},
    I.LATE_COMMIT: (NONE, S.OPEN_AGAIN),
    I.LATE_ABORT: (TXN_STATE, S.OPEN_AGAIN),
}  # fmt: skip


class Stage:
    """A transactional id in a state, with the identity of its producer and the one before."""

    def __init__(self, state: State) -> None:
        self.engine = Engine()
        self.engine.create()
        self.before = self.engine.init()
        if state is State.UNKNOWN:
            self.now = self.before
            self.engine.pass_time(WEEK_MS)
            return
        self.now = self.engine.init()
        if state in (State.COMMITTED, State.ABORTED, State.OPEN_AGAIN):
            self.open()
            after = self.engine.ended(self.now, commit=state is not State.ABORTED)
            self.before, self.now = self.now, after
        if state in (State.OPEN, State.OPEN_AGAIN):
            self.open()

    def open(self) -> None:
        assert not self.engine.produce(self.now, 0).error_code
        assert not self.engine.add_group(self.now)

    def meet(self, what: Input) -> ErrorCode:
        """Let it happen; the answer."""
        engine = self.engine
        who = self.before if what.name.startswith("LATE_") else self.now
        match what.name.removeprefix("LATE_"):
            case "PRODUCE":
                return engine.produce(who, 1 if self.state() in (S.OPEN, S.OPEN_AGAIN) else 0).error_code
            case "PLAIN":
                return engine.produce(Producer(who.producer_id, who.epoch), 0).error_code
            case "ADD_GROUP":
                return engine.add_group(who)
            case "OFFSETS":
                return engine.offsets_error(who)
            case "INIT":
                return engine.ask_init().error_code
            case "COMMIT" | "REFUSED" | "ABORT" as how:
                refused = codes.ILLEGAL_GENERATION if how == "REFUSED" else NONE
                return engine.end(who, commit=how != "ABORT", refused=refused).error_code
        engine.pass_time({Input.TIMEOUT: TIMEOUT_MS, Input.WEEK: WEEK_MS}[what])
        return NONE

    def state(self) -> State:
        """By what the log would say after a restart."""
        notified = [
            event
            for event in self.engine.log.snapshot()
            if event.WhichOneof("event") in ("producer_registered", "transaction_begun", "transaction_ended")
        ]
        kinds = [event.WhichOneof("event") for event in notified]
        if not kinds:
            return State.UNKNOWN
        if "transaction_ended" not in kinds:
            return State.OPEN if "transaction_begun" in kinds else State.IDLE
        (committed,) = [
            each.transaction_ended.committed for each in notified if each.HasField("transaction_ended")
        ]
        if "transaction_begun" in kinds:
            return State.OPEN_AGAIN if committed else State.OPEN
        return State.COMMITTED if committed else State.ABORTED


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("what", Input)
def test_every_state_has_an_answer_to_every_input(state: State, what: Input) -> None:
    error, after = TABLE[state][what]
    stage = Stage(state)
    assert stage.state() is state
    held = stage.engine.partition().open
    written = len(stage.engine.events), len(stage.engine.rows)
    assert stage.meet(what) == error
    assert stage.state() is after
    if error and what is not Input.REFUSED:
        assert (len(stage.engine.events), len(stage.engine.rows)) == written, "a refusal writes nothing"
    if after not in (State.OPEN, State.OPEN_AGAIN):
        assert stage.engine.partition().open == {}
    elif what is not Input.PRODUCE:
        assert stage.engine.partition().open == held
    stage.engine.crash()
    assert stage.state() is after


def test_the_table_is_complete() -> None:
    assert set(TABLE) == set(State)
    for state, answers in TABLE.items():
        assert set(answers) == set(Input), state


@pytest.mark.parametrize("state", [State.OPEN, State.OPEN_AGAIN])
@pytest.mark.parametrize("what", [Input.COMMIT, Input.REFUSED, Input.ABORT, Input.INIT, Input.TIMEOUT])
def test_an_end_is_sent_to_all_that_took_part_in_one_write(state: State, what: Input) -> None:
    stage = Stage(state)
    writes = len(stage.engine.writes)
    stage.meet(what)
    (effects,) = stage.engine.writes[writes:]
    committed = what is Input.COMMIT
    (row,) = effects.rows
    assert (row.header.count, row.payload, row.header.control) == (1, b"", 1 if committed else 2)
    assert (row.header.producer_id, row.header.producer_epoch) == stage.now[:2]
    assert effects.endings == [("group", stage.now.producer_id, stage.now.epoch, committed)]
    assert stage.engine.log.memberships(COPIER) == []
