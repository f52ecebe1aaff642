"""The last decisions of one group, for people: on the page, in the table and in explanations."""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict

from rota_operator.autoscaling.decision import Decision
from rota_operator.overview.view import ScaleDecisionView

DECISIONS_MAX = 20


class DecisionLog:
    """Invariant: at most DECISIONS_MAX decisions, newest first, of which no two that follow each other are alike."""

    def __init__(self, *, dry_run: bool) -> None:
        self._dry_run = dry_run
        self._decisions: deque[ScaleDecisionView] = deque(maxlen=DECISIONS_MAX)

    @property
    def decisions(self) -> Sequence[ScaleDecisionView]:
        """The decisions, newest first."""
        return tuple(self._decisions)

    def add(self, decision: Decision) -> bool:
        """Add a decision; it replaces the last one if numbers and reason are the same. Returns whether they are new."""
        view = ScaleDecisionView(
            at_ms=decision.inputs.at_ms,
            before=decision.inputs.replicas,
            replicas=decision.replicas,
            reason=decision.reason.value,
            explanation=decision.explanation,
            dry_run=self._dry_run,
            inputs=asdict(decision.inputs),
        )
        last = self._decisions[0] if self._decisions else None
        is_new = last is None or _key(last) != _key(view)
        if not is_new:
            self._decisions.popleft()
        self._decisions.appendleft(view)
        return is_new


def _key(view: ScaleDecisionView) -> tuple[int, int, str]:
    return view.before, view.replicas, view.reason
