"""What the member wants to be told about: topics by name or by pattern, under the strategies that it offers."""

import re
from collections.abc import Mapping

from rota_sidecar.core.consumer_protocol.user_data import fingerprint_of_plan
from rota_sidecar.core.member.config import Strategy, Subscription
from rota_sidecar.core.member.identity import Wanted


class Interests:
    """
    The subscription and the strategies, beside what topics there are.

    Invariant: a member that leads and has looked at the topics of its group knows whether its assignment was planned for
    them as they are; where the assignment does not say, the plan counts as old.
    """

    def __init__(self, subscription: Subscription, strategies: tuple[Strategy, ...]) -> None:
        self.subscription = subscription
        self.strategies = strategies
        # Told in names; a pattern is matched when something changed, not at each step.
        self._topics: tuple[str, ...] | None = None
        # The partitions of topics that were seen; None before anybody has looked.
        self.seen: Mapping[str, int] | None = None
        # Of a leader, the topics of the whole group, which it looks at for everybody.
        self.of_group: frozenset[str] = frozenset()
        # Fingerprint of what the assignment that a leader has was planned for. Empty: the plan does not say.
        self._planned = b""
        # What `seen` covers: of other topics it does not say that they do not exist. None: all there are.
        self._covered: frozenset[str] | None = frozenset()
        self.plan_is_old = False

    def subscribe(self, subscription: Subscription) -> None:
        """Another subscription. For a pattern all topics have to be looked at, and perhaps only some were."""
        if subscription.pattern and not self.subscription.pattern:
            self.seen = None
        self.subscription = subscription
        self._topics = None

    def look(self, seen: Mapping[str, int], *, leads: bool) -> None:
        """These topics there are now, of those that are watched."""
        self.seen, self._covered = seen, self.watched(leads=leads)
        self._topics = None
        self._judge_plan()

    def plan(self, partitions: Mapping[str, int]) -> None:
        """The leader has looked at these topics to plan with; those with 0 partitions do not exist."""
        self.of_group = frozenset(partitions)
        if self.seen is not None:
            others = {name: count for name, count in self.seen.items() if name not in partitions}
            self.seen = others | {name: count for name, count in partitions.items() if count}
            self._covered = None if self._covered is None else self._covered | self.of_group
            self._topics = None

    def planned(self, fingerprint: bytes) -> None:
        """The leader has the assignment, and what it says of its plan."""
        self._planned = fingerprint
        self._judge_plan()

    def _judge_plan(self) -> None:
        """
        Keep whether topics came, went or grew since the plan was made: a leader always knows, or asks for another plan.

        It is known once all topics of the group were looked at.
        """
        seen, covered = self.seen, self._covered
        if not self._planned:
            self.plan_is_old = True
        elif seen is not None and (covered is None or self.of_group <= covered):
            now = {name: seen.get(name, 0) for name in self.of_group}
            self.plan_is_old = fingerprint_of_plan(now) != self._planned
        else:
            self.plan_is_old = False

    @property
    def is_known(self) -> bool:
        """Whether the subscription can be told in names."""
        return not self.subscription.pattern or self.seen is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """The names."""
        if self._topics is None:
            self._topics = tuple(sorted(set(self.subscription.topics) or self._matching()))
        return self._topics

    def _matching(self) -> set[str]:
        pattern = re.compile(self.subscription.pattern)
        return {name for name in self.seen or {} if pattern.fullmatch(name)}

    @property
    def wanted(self) -> Wanted:
        """What is told in a join."""
        return Wanted(self.topics, tuple(strategy.name for strategy in self.strategies))

    @property
    def cooperative(self) -> bool:
        """Whether partitions may be kept during a rebalance: only if every strategy that may win allows it."""
        return all(strategy.cooperative for strategy in self.strategies)

    @property
    def missing(self) -> tuple[str, ...]:
        """Topics that were asked for by name and do not exist."""
        return tuple(name for name in self.topics if self.seen is not None and name not in self.seen)

    def watched(self, *, leads: bool) -> frozenset[str] | None:
        """The topics to look at; None for all. The leader looks for everybody."""
        if self.subscription.pattern:
            return None
        return frozenset(self.topics) | (self.of_group if leads else frozenset())
