"""Every step of a transactional producer is decided in every state."""

import itertools

import pytest

from rota import errors
from rota.producer.transaction_state import State, Step, TransactionState

# State by state: what each step leads to; a step that is not named is refused.
ALLOWED = {
    State.NEW: {Step.START: State.STARTING},
    State.STARTING: {Step.START: State.STARTING, Step.STARTED: State.READY},
    State.READY: {Step.BEGIN: State.OPEN},
    State.OPEN: {
        Step.SEND: State.OPEN,
        Step.SEND_OFFSETS: State.OPEN,
        Step.COMMIT: State.COMMITTING,
        Step.ABORT: State.ABORTING,
        Step.SPOIL: State.SPOILED,
    },
    State.COMMITTING: {
        Step.COMMIT: State.COMMITTING,
        Step.ENDED: State.READY,
        Step.SPOIL: State.SPOILED,
    },
    State.ABORTING: {Step.ABORT: State.ABORTING, Step.ENDED: State.READY},
    State.SPOILED: {Step.ABORT: State.ABORTING, Step.SPOIL: State.SPOILED},
    State.DEAD: {},
}
TOLD = (Step.STARTED, Step.ENDED, Step.SPOIL)
PAIRS = list(itertools.product(State, Step))
SPOILT = errors.InvalidRecord("orders[0]")
FENCED = errors.ProducerFenced("the abort")


def in_state(state: State) -> TransactionState:
    found = TransactionState()
    found.state = state
    found.error = {State.SPOILED: SPOILT, State.DEAD: FENCED}.get(state)
    return found


def test_every_pair_is_looked_at() -> None:
    assert len(PAIRS) == len(State) * len(Step) == 80


@pytest.mark.parametrize(("state", "step"), PAIRS)
def test_a_step_leads_to_where_kafkas_producer_goes(state: State, step: Step) -> None:
    transaction = in_state(state)
    wanted = ALLOWED[state].get(step, state if step in TOLD else None)
    if step is Step.KILL:
        wanted = State.DEAD
    if wanted is None:
        with pytest.raises(errors.RotaError) as refused:
            transaction.take(step, SPOILT)
        assert refused.value.fatal is (state is State.DEAD)
        assert transaction.state is state
    else:
        transaction.take(step, SPOILT)
        assert transaction.state is wanted


def test_the_first_error_is_the_one_that_is_told() -> None:
    transaction = in_state(State.OPEN)
    transaction.take(Step.SPOIL, SPOILT)
    transaction.take(Step.SPOIL, errors.TimedOut("later"))

    with pytest.raises(errors.TransactionAbortable, match=r"orders\[0\]") as refused:
        transaction.take(Step.COMMIT)
    assert refused.value.__cause__ is SPOILT


def test_a_dead_producer_says_why_under_the_same_name() -> None:
    with pytest.raises(errors.ProducerFenced, match="cannot be used any more, close it: the abort"):
        in_state(State.DEAD).take(Step.BEGIN)


def test_an_ended_transaction_leaves_no_error_behind() -> None:
    transaction = in_state(State.SPOILED)
    transaction.take(Step.ABORT)
    transaction.take(Step.ENDED)
    assert (transaction.state, transaction.error) == (State.READY, None)
