"""Every step of a transactional producer is decided in every state."""

import itertools

import pytest

from rota import errors
from rota.producer.transaction_state import Operation, State, TransactionState

# State by state: what each step leads to; a step that is not named is refused.
ALLOWED = {
    State.UNINITIALIZED: {Operation.INITIALIZE: State.INITIALIZING},
    State.INITIALIZING: {Operation.INITIALIZE: State.INITIALIZING, Operation.INITIALIZED: State.READY},
    State.READY: {Operation.BEGIN: State.IN_TRANSACTION},
    State.IN_TRANSACTION: {
        Operation.SEND: State.IN_TRANSACTION,
        Operation.SEND_OFFSETS: State.IN_TRANSACTION,
        Operation.COMMIT: State.COMMITTING,
        Operation.ABORT: State.ABORTING,
        Operation.FAIL_TRANSACTION: State.ABORTABLE_ERROR,
    },
    State.COMMITTING: {
        Operation.COMMIT: State.COMMITTING,
        Operation.COMPLETED: State.READY,
        Operation.FAIL_TRANSACTION: State.ABORTABLE_ERROR,
    },
    State.ABORTING: {Operation.ABORT: State.ABORTING, Operation.COMPLETED: State.READY},
    State.ABORTABLE_ERROR: {
        Operation.ABORT: State.ABORTING,
        Operation.FAIL_TRANSACTION: State.ABORTABLE_ERROR,
    },
    State.FATAL_ERROR: {},
}
OUTCOMES = (Operation.INITIALIZED, Operation.COMPLETED, Operation.FAIL_TRANSACTION)
PAIRS = list(itertools.product(State, Operation))
SPOILT = errors.InvalidRecord("orders[0]")
FENCED = errors.ProducerFenced("the abort")


def in_state(state: State) -> TransactionState:
    found = TransactionState()
    found.state = state
    found.error = {State.ABORTABLE_ERROR: SPOILT, State.FATAL_ERROR: FENCED}.get(state)
    return found


def test_every_pair_is_looked_at() -> None:
    assert len(PAIRS) == len(State) * len(Operation) == 80


@pytest.mark.parametrize(("state", "operation"), PAIRS)
def test_a_step_leads_to_where_kafkas_producer_goes(state: State, operation: Operation) -> None:
    transaction = in_state(state)
    wanted = ALLOWED[state].get(operation, state if operation in OUTCOMES else None)
    if operation is Operation.FAIL_PRODUCER:
        wanted = State.FATAL_ERROR
    if wanted is None:
        with pytest.raises(errors.RotaError) as refused:
            transaction.apply(operation, SPOILT)
        assert refused.value.fatal is (state is State.FATAL_ERROR)
        assert transaction.state is state
    else:
        transaction.apply(operation, SPOILT)
        assert transaction.state is wanted


def test_the_first_error_is_the_one_that_is_raised() -> None:
    transaction = in_state(State.IN_TRANSACTION)
    transaction.apply(Operation.FAIL_TRANSACTION, SPOILT)
    transaction.apply(Operation.FAIL_TRANSACTION, errors.TimedOut("later"))

    with pytest.raises(errors.TransactionAbortable, match=r"orders\[0\]") as refused:
        transaction.apply(Operation.COMMIT)
    assert refused.value.__cause__ is SPOILT


def test_a_dead_producer_says_why_under_the_same_name() -> None:
    with pytest.raises(errors.ProducerFenced, match="has failed and must be closed: the abort"):
        in_state(State.FATAL_ERROR).apply(Operation.BEGIN)


def test_an_ended_transaction_leaves_no_error_behind() -> None:
    transaction = in_state(State.ABORTABLE_ERROR)
    transaction.apply(Operation.ABORT)
    transaction.apply(Operation.COMPLETED)
    assert (transaction.state, transaction.error) == (State.READY, None)
