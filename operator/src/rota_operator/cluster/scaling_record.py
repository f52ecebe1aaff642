"""
Keeps an autoscaler's state in `status.scaling`: the last decisions with their inputs, and what the next leader of the operator needs.

The shell of the cluster adds each decision with `recorded`, and begins with `history_of` the status that its predecessor has left. An
entry is written once, when numbers or reason change, so that the status of a group at rest does not change.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict

from rota_operator.autoscaling.decision import Decision
from rota_operator.autoscaling.decision_log import DECISIONS_MAX
from rota_operator.autoscaling.history import Change, History, IneffectiveChange, Rebalance
from rota_operator.spec.status import IneffectiveScaling, Scaling, ScalingDecision, ScalingInputs
from rota_operator.timestamps import milliseconds, timestamp

MESSAGE_LENGTH_MAX = 1024


def recorded(
    former: Scaling, decision: Decision, history: History, needed: int | None, *, dry_run: bool
) -> Scaling:
    """Return the record with a decision on this history; `needed` is the number of replicas that the load asks for."""
    decisions = former.decisions
    if is_new(former, decision):
        decisions = (_entry(decision, dry_run=dry_run), *decisions)[:DECISIONS_MAX]
    return former.model_copy(
        update={
            "recommendation": decision.replicas,
            "needed_replicas": needed,
            "explanation": decisions[0].message,
            "decisions": decisions,
            "ineffective": _ineffective(history.ineffective),
        }
    )


def is_new(former: Scaling, decision: Decision) -> bool:
    """Return whether numbers or reason of a decision are others than those of the last one."""
    if not former.decisions:
        return True
    last = former.decisions[0]
    return (last.replicas, last.recommendation, last.reason) != (
        decision.inputs.replicas,
        decision.replicas,
        decision.reason.value,
    )


def changed(former: Scaling, at_ms: int) -> Scaling:
    """Return the record after the number of replicas was changed."""
    return former.model_copy(update={"last_scale_time": timestamp(at_ms)})


def rebalanced(former: Scaling, at_ms: int) -> Scaling:
    """Return the record after a rebalance was ordered."""
    return former.model_copy(update={"last_rebalance_time": timestamp(at_ms)})


def history_of(scaling: Scaling) -> History:
    """Return the history that a record stands for: the last changes, whose effects are judged no more, and the ineffective ones."""
    change = None
    if scaling.last_scale_time is not None:
        done = next((each for each in scaling.decisions if each.replicas != each.recommendation), None)
        before, after = (0, 0) if done is None else (done.replicas, done.recommendation)
        change = Change(milliseconds(scaling.last_scale_time), before, after, None, None)
    noted = tuple(
        IneffectiveChange(milliseconds(each.time), each.from_replicas, each.to_replicas)
        for each in scaling.ineffective
    )
    at = scaling.last_rebalance_time
    return History(
        change=change, ineffective=noted, rebalance=None if at is None else Rebalance(milliseconds(at))
    )


def _entry(decision: Decision, *, dry_run: bool) -> ScalingDecision:
    inputs = {name: _finite(value) for name, value in asdict(decision.inputs).items()}
    inputs["knowledge"] = decision.inputs.knowledge.value
    return ScalingDecision(
        time=timestamp(decision.inputs.at_ms),
        replicas=decision.inputs.replicas,
        recommendation=decision.replicas,
        reason=decision.reason.value,
        message=decision.explanation[:MESSAGE_LENGTH_MAX],
        dry_run=dry_run,
        inputs=ScalingInputs.model_validate(inputs),
    )


def _ineffective(changes: Sequence[IneffectiveChange]) -> tuple[IneffectiveScaling, ...]:
    return tuple(
        IneffectiveScaling(time=timestamp(each.at_ms), from_replicas=each.before, to_replicas=each.after)
        for each in changes
    )


def _finite(value: object) -> object:
    """Return a value that JSON can hold: a number that is none is unknown."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
