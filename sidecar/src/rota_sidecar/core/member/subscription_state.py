"""What the member wants to be told about: topics by name or by pattern, under the strategies that it offers."""

import re
from collections.abc import Mapping

from rota_sidecar.core.consumer_protocol.user_data import fingerprint_of_plan
from rota_sidecar.core.member.config import Strategy, Subscription
from rota_sidecar.core.member.identity import JoinMetadata


class SubscriptionState:
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
        self.topic_partitions: Mapping[str, int] | None = None
        # Of a leader, the topics of the whole group, which it looks at for everybody.
        self.group_topics: frozenset[str] = frozenset()
        # Fingerprint of what the assignment that a leader has was planned for. Empty: the plan does not say.
        self._plan_fingerprint = b""
        # What `seen` covers: of other topics it does not say that they do not exist. None: all there are.
        self._covered: frozenset[str] | None = frozenset()
        self.plan_is_old = False

    def subscribe(self, subscription: Subscription) -> None:
        """Another subscription. For a pattern all topics have to be looked at, and perhaps only some were."""
        if subscription.pattern and not self.subscription.pattern:
            self.topic_partitions = None
        self.subscription = subscription
        self._topics = None

    def update_topics(self, topic_partitions: Mapping[str, int], *, leads: bool) -> None:
        """These topics there are now, of those that are watched."""
        self.topic_partitions, self._covered = topic_partitions, self.watched(leads=leads)
        self._topics = None
        self._check_plan_age()

    def record_planned_topics(self, partitions: Mapping[str, int]) -> None:
        """The leader has looked at these topics to plan with; those with 0 partitions do not exist."""
        self.group_topics = frozenset(partitions)
        if self.topic_partitions is not None:
            others = {name: count for name, count in self.topic_partitions.items() if name not in partitions}
            self.topic_partitions = others | {name: count for name, count in partitions.items() if count}
            self._covered = None if self._covered is None else self._covered | self.group_topics
            self._topics = None

    def set_plan_fingerprint(self, fingerprint: bytes) -> None:
        """The leader has the assignment, and what it says of its plan."""
        self._plan_fingerprint = fingerprint
        self._check_plan_age()

    def _check_plan_age(self) -> None:
        """
        Keep whether topics came, went or grew since the plan was made: a leader always knows, or asks for another plan.

        It is known once all topics of the group were looked at.
        """
        topic_partitions, covered = self.topic_partitions, self._covered
        if not self._plan_fingerprint:
            self.plan_is_old = True
        elif topic_partitions is not None and (covered is None or self.group_topics <= covered):
            now = {name: topic_partitions.get(name, 0) for name in self.group_topics}
            self.plan_is_old = fingerprint_of_plan(now) != self._plan_fingerprint
        else:
            self.plan_is_old = False

    @property
    def is_known(self) -> bool:
        """Whether the subscription can be told in names."""
        return not self.subscription.pattern or self.topic_partitions is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """The names."""
        if self._topics is None:
            self._topics = tuple(sorted(set(self.subscription.topics) or self._matching()))
        return self._topics

    def _matching(self) -> set[str]:
        pattern = re.compile(self.subscription.pattern)
        return {name for name in self.topic_partitions or {} if pattern.fullmatch(name)}

    @property
    def join_metadata(self) -> JoinMetadata:
        """What is told in a join."""
        return JoinMetadata(self.topics, tuple(strategy.name for strategy in self.strategies))

    @property
    def cooperative(self) -> bool:
        """Whether partitions may be kept during a rebalance: only if every strategy that may win allows it."""
        return all(strategy.cooperative for strategy in self.strategies)

    @property
    def missing(self) -> tuple[str, ...]:
        """Topics that were asked for by name and do not exist."""
        return tuple(
            name
            for name in self.topics
            if self.topic_partitions is not None and name not in self.topic_partitions
        )

    def watched(self, *, leads: bool) -> frozenset[str] | None:
        """The topics to look at; None for all. The leader looks for everybody."""
        if self.subscription.pattern:
            return None
        return frozenset(self.topics) | (self.group_topics if leads else frozenset())
