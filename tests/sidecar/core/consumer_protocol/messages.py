"""Strategies of subscriptions and assignments, for property tests."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from rota_proto.consumer_protocol import Subscription
from rota_sidecar.core.consumer_protocol.assignment import Assignment

Lists = Mapping[str, Sequence[int]]

TOPIC = st.text(min_size=1, max_size=12)
NUMBERS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)
OWNED: st.SearchStrategy[Lists] = st.dictionaries(TOPIC, NUMBERS, max_size=5)
SUBSCRIPTION = st.builds(
    Subscription,
    topics=st.lists(TOPIC, max_size=5),
    user_data=st.binary(max_size=30),
    owned=OWNED,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.text(max_size=8),
)
ASSIGNMENT = st.builds(Assignment, partitions=OWNED, user_data=st.binary(max_size=30))


def lists(by_topic: Lists) -> dict[str, list[int]]:
    """As plain lists, which can be compared."""
    return {topic: list(numbers) for topic, numbers in by_topic.items()}
