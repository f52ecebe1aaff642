"""What the member wants to be told about: topics by name or by pattern, under the strategies that it offers."""

import re
from collections.abc import Mapping

from rota_sidecar.member.config import Strategy, Subscription
from rota_sidecar.member.identity import Wanted


class Interests:
    """The subscription and the strategies, beside what topics there are."""

    def __init__(self, subscription: Subscription, strategies: tuple[Strategy, ...]) -> None:
        self.subscription = subscription
        self.strategies = strategies
        # Told in names; a pattern is matched when something changed, not at each step.
        self._topics: tuple[str, ...] | None = None
        # The partitions of topics that were seen; None before anybody has looked.
        self.seen: Mapping[str, int] | None = None
        # Those that the plan of this leader was made for, with 0 for a topic that there was not.
        self.planned: Mapping[str, int] = {}

    def subscribe(self, subscription: Subscription) -> None:
        """Another subscription. For a pattern all topics have to be looked at, and perhaps only some were."""
        if subscription.pattern and not self.subscription.pattern:
            self.seen = None
        self.subscription = subscription
        self._topics = None

    def look(self, seen: Mapping[str, int]) -> None:
        """These topics there are now."""
        self.seen = seen
        self._topics = None

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
        return frozenset(self.topics) | (frozenset(self.planned) if leads else frozenset())

    @property
    def plan_is_old(self) -> bool:
        """Whether topics came, went or grew since the plan was made."""
        seen = self.seen
        return seen is not None and any(seen.get(name, 0) != count for name, count in self.planned.items())
