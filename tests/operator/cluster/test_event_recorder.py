"""Events of a resource are bounded in time and number."""

from rota_operator.cluster.event_recorder import (
    EVENTS_MAX,
    MESSAGE_BYTES_MAX,
    NORMAL,
    WINDOW_S,
    Budget,
    Fact,
    event_of,
)


def fact(number: int) -> Fact:
    return Fact(NORMAL, "Scaled", f"scaled to {number} replicas")


def test_equal_events_are_written_once_in_a_window_and_others_up_to_the_bound() -> None:
    budget = Budget()
    assert budget.allow(fact(0), 0.0)
    assert not budget.allow(fact(0), WINDOW_S - 1)
    assert [budget.allow(fact(number), 1.0) for number in range(1, EVENTS_MAX + 1)] == [
        *[True] * (EVENTS_MAX - 1),
        False,
    ]
    assert budget.allow(fact(0), WINDOW_S)
    assert not budget.allow(fact(99), WINDOW_S)


def test_an_event_is_about_its_resource_and_no_longer_than_the_api_server_allows() -> None:
    resource = {"metadata": {"namespace": "shop", "name": "orders", "uid": "u", "resourceVersion": "7"}}
    event = event_of(resource, Fact(NORMAL, "Adopted", "é" * 2_000), 1_999, "operator-0")
    assert event["involvedObject"]["uid"] == "u"
    assert event["metadata"]["namespace"] == "shop"
    assert event["firstTimestamp"] == "1970-01-01T00:00:01Z"
    assert len(event["message"].encode()) == MESSAGE_BYTES_MAX
