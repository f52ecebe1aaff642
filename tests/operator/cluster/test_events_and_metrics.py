"""Events of a resource are bounded in time, and its metrics go with it."""

from rota_operator.cluster.event_recorder import (
    EVENTS_MAX,
    MESSAGE_BYTES_MAX,
    NORMAL,
    WINDOW_S,
    Budget,
    Fact,
    event_of,
)
from rota_operator.cluster.metrics import Metrics
from rota_operator.cluster.queues import Key

ORDERS, PAYMENTS = Key("shop", "orders"), Key("shop", "payments")


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
    event = event_of(resource, Fact(NORMAL, "Adopted", "é" * 2_000), 1.0, "operator-0")
    assert event["involvedObject"]["uid"] == "u"
    assert event["metadata"]["namespace"] == "shop"
    assert event["firstTimestamp"] == "1970-01-01T00:00:01Z"
    assert len(event["message"].encode()) == MESSAGE_BYTES_MAX


def series(metrics: Metrics) -> set[str]:
    return {line for line in metrics.text().decode().splitlines() if line.startswith("rota_group")}


def test_a_group_has_the_series_of_its_status_and_none_for_what_is_unknown() -> None:
    metrics = Metrics()
    ready = {"type": "Ready", "status": "True"}
    stuck = {"type": "Stuck", "status": "Unknown"}
    metrics.update(
        ORDERS,
        {
            "groupId": "shop.orders", "coordination": "Rota", "partitions": 12, "unownedPartitions": 0,
            "lag": {"total": 7}, "replicas": 2, "conditions": [ready, stuck],
        },
    )  # fmt: skip
    names = 'name="orders",namespace="shop"'
    assert series(metrics) == {
        f'rota_group_info{{coordination="Rota",group="shop.orders",{names}}} 1.0',
        f"rota_group_partitions{{{names}}} 12.0",
        f"rota_group_unowned_partitions{{{names}}} 0.0",
        f"rota_group_lag_records{{{names}}} 7.0",
        f'rota_group_replicas{{kind="actual",{names}}} 2.0',
        f'rota_group_condition{{{names},type="Ready"}} 1.0',
    }


def test_series_change_and_die_with_their_resource_alone() -> None:
    metrics = Metrics()
    metrics.update(ORDERS, {"partitions": 12, "lag": {"total": 7}})
    metrics.update(PAYMENTS, {"partitions": 1})
    metrics.update(ORDERS, {"partitions": 13})
    assert series(metrics) == {
        'rota_group_partitions{name="orders",namespace="shop"} 13.0',
        'rota_group_partitions{name="payments",namespace="shop"} 1.0',
    }
    metrics.remove(ORDERS)
    metrics.remove(ORDERS)
    assert series(metrics) == {'rota_group_partitions{name="payments",namespace="shop"} 1.0'}
