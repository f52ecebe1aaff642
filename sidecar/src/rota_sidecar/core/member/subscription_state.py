"""Subscription of a member: topics by name or by pattern, the offered strategies, and the topics that exist."""

import re
from collections.abc import Mapping

from rota_sidecar.core.consumer_protocol.user_data import fingerprint_of_plan
from rota_sidecar.core.member.config import Strategy, Subscription
from rota_sidecar.core.member.identity import JoinMetadata


class SubscriptionState:
    """
    The subscription, the strategies, and the known partition counts.

    Invariant: once a leader knows the partition counts of all topics of its group, `plan_is_old` says whether its assignment
    was computed for other counts; an assignment without a fingerprint counts as old.
    """

    def __init__(self, subscription: Subscription, strategies: tuple[Strategy, ...]) -> None:
        self.subscription = subscription
        self.strategies = strategies
        # Topic names, cached: a pattern is matched again only after a change.
        self._topics: tuple[str, ...] | None = None
        # Partition count of each known topic; None before the first description.
        self.topic_partitions: Mapping[str, int] | None = None
        # Of a leader: the topics of the whole group, which it watches for all members.
        self.group_topics: frozenset[str] = frozenset()
        # Fingerprint of the partition counts for which the leader's assignment was computed; empty: unknown.
        self._plan_fingerprint = b""
        # Topics that `topic_partitions` covers: other topics may exist although they are not in it. None: all topics.
        self._covered: frozenset[str] | None = frozenset()
        self.plan_is_old = False

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription. A new pattern needs the description of all topics, so known counts are dropped."""
        if subscription.pattern and not self.subscription.pattern:
            self.topic_partitions = None
        self.subscription = subscription
        self._topics = None

    def update_topics(self, topic_partitions: Mapping[str, int], *, leads: bool) -> None:
        """Replace the partition counts of the watched topics; topics that are left out do not exist."""
        self.topic_partitions, self._covered = topic_partitions, self.watched(leads=leads)
        self._topics = None
        self._check_plan_age()

    def record_planned_topics(self, partitions: Mapping[str, int]) -> None:
        """Record the partition counts that the leader planned with; 0 means that the topic does not exist."""
        self.group_topics = frozenset(partitions)
        if self.topic_partitions is not None:
            others = {name: count for name, count in self.topic_partitions.items() if name not in partitions}
            self.topic_partitions = others | {name: count for name, count in partitions.items() if count}
            self._covered = None if self._covered is None else self._covered | self.group_topics
            self._topics = None

    def set_plan_fingerprint(self, fingerprint: bytes) -> None:
        """Record the fingerprint that came with the leader's assignment."""
        self._plan_fingerprint = fingerprint
        self._check_plan_age()

    def _check_plan_age(self) -> None:
        """
        Set `plan_is_old` if topics were created, deleted or extended since the plan was computed.

        Undecided, and False, until the counts of all topics of the group are known.
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
        """True if the subscribed topic names are known."""
        return not self.subscription.pattern or self.topic_partitions is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """Subscribed topic names, sorted."""
        if self._topics is None:
            self._topics = tuple(sorted(set(self.subscription.topics) or self._matching()))
        return self._topics

    def _matching(self) -> set[str]:
        pattern = re.compile(self.subscription.pattern)
        return {name for name in self.topic_partitions or {} if pattern.fullmatch(name)}

    @property
    def join_metadata(self) -> JoinMetadata:
        """Content of the next JoinGroup request."""
        return JoinMetadata(self.topics, tuple(strategy.name for strategy in self.strategies))

    @property
    def cooperative(self) -> bool:
        """True if the member keeps partitions during a rebalance: every offered strategy must be cooperative."""
        return all(strategy.cooperative for strategy in self.strategies)

    @property
    def missing(self) -> tuple[str, ...]:
        """Subscribed topics that do not exist."""
        return tuple(
            name
            for name in self.topics
            if self.topic_partitions is not None and name not in self.topic_partitions
        )

    def watched(self, *, leads: bool) -> frozenset[str] | None:
        """Topics to describe; None: all. A leader describes the topics of the whole group."""
        if self.subscription.pattern:
            return None
        return frozenset(self.topics) | (self.group_topics if leads else frozenset())
