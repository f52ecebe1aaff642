"""
What a transactional producer may do next. Pure; both ends of `rota_engine.py` ask here before they act.

As in Kafka's own producer: an error that spoils the transaction leaves abort as the only way on, one that spoils the
producer leaves none.
"""

import enum

from rota import errors


class State(enum.Enum):
    """Where a transactional producer stands."""

    NEW = "has not called init_transactions"
    STARTING = "is still in init_transactions"
    READY = "has no transaction open"
    OPEN = "has a transaction open"
    COMMITTING = "is committing"
    ABORTING = "is aborting"
    SPOILED = "has a transaction that can only be aborted"
    DEAD = "cannot be used any more"


class Step(enum.Enum):
    """What is asked of it, or happens to it."""

    START = "init_transactions"
    STARTED = "started"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    ENDED = "ended"
    SPOIL = "a failure of the transaction"
    KILL = "a failure of the producer"


NEXT: dict[Step, dict[State, State]] = {
    # Again, where the outcome of the first call is not known.
    Step.START: {State.NEW: State.STARTING, State.STARTING: State.STARTING},
    Step.STARTED: {State.STARTING: State.READY},
    Step.BEGIN: {State.READY: State.OPEN},
    Step.SEND: {State.OPEN: State.OPEN},
    Step.SEND_OFFSETS: {State.OPEN: State.OPEN},
    # Again too: whether a commit took place must be asked in the same words.
    Step.COMMIT: {State.OPEN: State.COMMITTING, State.COMMITTING: State.COMMITTING},
    Step.ABORT: {State.OPEN: State.ABORTING, State.SPOILED: State.ABORTING, State.ABORTING: State.ABORTING},
    Step.ENDED: {State.COMMITTING: State.READY, State.ABORTING: State.READY},
    # What fails while it aborts was not to count anyway.
    Step.SPOIL: {
        State.OPEN: State.SPOILED,
        State.COMMITTING: State.SPOILED,
        State.SPOILED: State.SPOILED,
        State.ABORTING: State.ABORTING,
        State.READY: State.READY,
    },
    Step.KILL: dict.fromkeys(State, State.DEAD),
}
"""A step that is not here for a state is refused in it."""

SILENT = {Step.SPOIL, Step.STARTED, Step.ENDED}
"""They tell of what happened: where they fit no more, nothing changes."""


class TransactionState:
    """The state of one producer."""

    def __init__(self) -> None:
        self.state = State.NEW
        # Why it is spoiled or dead.
        self.error: errors.RotaError | None = None

    def take(self, step: Step, error: errors.RotaError | None = None) -> None:
        """Go on by a step; raises where it does not fit."""
        if self.state is State.DEAD:
            if step in SILENT or step is Step.KILL:
                return
            raise self._dead()
        to = NEXT[step].get(self.state)
        if to is None:
            if step not in SILENT:
                raise self._refused(step)
            return
        if to in (State.SPOILED, State.DEAD):
            self.error = self.error if self.state is State.SPOILED and to is State.SPOILED else error
        elif to is State.READY:
            self.error = None
        self.state = to

    def check(self, step: Step) -> None:
        """Raise where the step would not fit."""
        if self.state is State.DEAD:
            raise self._dead()
        if self.state not in NEXT[step]:
            raise self._refused(step)

    def _dead(self) -> errors.RotaError:
        assert self.error is not None
        error = type(self.error).with_message(f"the producer cannot be used any more, close it: {self.error}")
        error.fatal = True
        return error

    def _refused(self, step: Step) -> errors.RotaError:
        if self.state is State.SPOILED:
            refused = errors.TransactionAbortable.with_message(
                f"{step.value} is not possible, abort the transaction: {self.error}"
            )
            refused.__cause__ = self.error
            return refused
        return errors.IllegalState(
            f"{step.value} is not possible: the producer {self.state.value}; {REMEDY[self.state]}"
        )


REMEDY = {
    State.NEW: "call init_transactions first",
    State.STARTING: "call init_transactions again until it returns",
    State.READY: "call begin_transaction first, and send inside of the transaction",
    State.OPEN: "commit or abort the open transaction first",
    State.COMMITTING: "call commit_transaction again until it returns",
    State.ABORTING: "call abort_transaction again until it returns",
    State.SPOILED: "abort the transaction",
    State.DEAD: "close it",
}
