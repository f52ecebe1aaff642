"""
State machine of a transactional producer, with the states of Kafka's TransactionManager. Pure; called by `rota_engine.py`.

As in Kafka's own producer: after an abortable error only abort is allowed, after a fatal error nothing is.
"""

import enum

from rota import errors


class State(enum.Enum):
    """States of a transactional producer; the value completes "the producer …"."""

    UNINITIALIZED = "has not called init_transactions"
    INITIALIZING = "is still in init_transactions"
    READY = "has no transaction open"
    IN_TRANSACTION = "has a transaction open"
    COMMITTING = "is committing"
    ABORTING = "is aborting"
    ABORTABLE_ERROR = "has a failed transaction"
    FATAL_ERROR = "has failed"


class Operation(enum.Enum):
    """Calls of the application, and events that change the state."""

    INITIALIZE = "init_transactions"
    INITIALIZED = "started"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    COMPLETED = "ended"
    FAIL_TRANSACTION = "a failure of the transaction"
    FAIL_PRODUCER = "a failure of the producer"


NEXT: dict[Operation, dict[State, State]] = {
    # Repeated if the outcome of the first call is unknown.
    Operation.INITIALIZE: {State.UNINITIALIZED: State.INITIALIZING, State.INITIALIZING: State.INITIALIZING},
    Operation.INITIALIZED: {State.INITIALIZING: State.READY},
    Operation.BEGIN: {State.READY: State.IN_TRANSACTION},
    Operation.SEND: {State.IN_TRANSACTION: State.IN_TRANSACTION},
    Operation.SEND_OFFSETS: {State.IN_TRANSACTION: State.IN_TRANSACTION},
    # Repeated: an undecided commit is only resolved by the same request.
    Operation.COMMIT: {State.IN_TRANSACTION: State.COMMITTING, State.COMMITTING: State.COMMITTING},
    Operation.ABORT: {
        State.IN_TRANSACTION: State.ABORTING,
        State.ABORTABLE_ERROR: State.ABORTING,
        State.ABORTING: State.ABORTING,
    },
    Operation.COMPLETED: {State.COMMITTING: State.READY, State.ABORTING: State.READY},
    # Failures during an abort concern records that are discarded anyway.
    Operation.FAIL_TRANSACTION: {
        State.IN_TRANSACTION: State.ABORTABLE_ERROR,
        State.COMMITTING: State.ABORTABLE_ERROR,
        State.ABORTABLE_ERROR: State.ABORTABLE_ERROR,
        State.ABORTING: State.ABORTING,
        State.READY: State.READY,
    },
    Operation.FAIL_PRODUCER: dict.fromkeys(State, State.FATAL_ERROR),
}
"""The next state, by operation and state. An operation without an entry for a state is not allowed there."""

UNCHECKED = {Operation.FAIL_TRANSACTION, Operation.INITIALIZED, Operation.COMPLETED}
"""Operations that report an event: without an entry for the state they change nothing."""


class TransactionState:
    """The state of one producer. Invariant: `error` is set in the failed states."""

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        # The error that failed the transaction or the producer.
        self.error: errors.RotaError | None = None

    def apply(self, operation: Operation, error: errors.RotaError | None = None) -> None:
        """Perform an operation; raise if the state does not allow it."""
        if self.state is State.FATAL_ERROR:
            if operation in UNCHECKED or operation is Operation.FAIL_PRODUCER:
                return
            raise self._fatal_error()
        to = NEXT[operation].get(self.state)
        if to is None:
            if operation not in UNCHECKED:
                raise self._not_allowed(operation)
            return
        if to in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            self.error = (
                self.error if self.state is State.ABORTABLE_ERROR and to is State.ABORTABLE_ERROR else error
            )
        elif to is State.READY:
            self.error = None
        self.state = to

    def check(self, operation: Operation) -> None:
        """Raise if the state does not allow the operation."""
        if self.state is State.FATAL_ERROR:
            raise self._fatal_error()
        if self.state not in NEXT[operation]:
            raise self._not_allowed(operation)

    def _fatal_error(self) -> errors.RotaError:
        assert self.error is not None
        error = type(self.error).with_message(f"the producer has failed and must be closed: {self.error}")
        error.fatal = True
        return error

    def _not_allowed(self, operation: Operation) -> errors.RotaError:
        if self.state is State.ABORTABLE_ERROR:
            refused = errors.TransactionAbortable.with_message(
                f"{operation.value} is not allowed, abort the transaction: {self.error}"
            )
            refused.__cause__ = self.error
            return refused
        return errors.IllegalState(
            f"{operation.value} is not allowed: the producer {self.state.value}; {REMEDY[self.state]}"
        )


REMEDY = {
    State.UNINITIALIZED: "call init_transactions first",
    State.INITIALIZING: "call init_transactions again until it returns",
    State.READY: "call begin_transaction first, and send inside the transaction",
    State.IN_TRANSACTION: "commit or abort the open transaction first",
    State.COMMITTING: "call commit_transaction again until it returns",
    State.ABORTING: "call abort_transaction again until it returns",
    State.ABORTABLE_ERROR: "abort the transaction",
    State.FATAL_ERROR: "close it",
}
