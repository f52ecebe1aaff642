"""A ConsumerGroup's series are those of its status and its spec, and end with it."""

from collections.abc import Mapping, Sequence

import pytest

from rota_operator.cluster.leading import alerts_of
from rota_operator.cluster.metrics import Metrics
from rota_operator.cluster.queues import Key
from rota_operator.spec.model import Alerts
from rota_operator.spec.validation import parse_spec
from tests.support.documented_metrics import undocumented
from tests.support.prometheus.programs import check_metrics

ORDERS, PAYMENTS = Key("shop", "orders"), Key("shop", "payments")
SPEC = {
    "bootstrapServers": ["rota://coordinator:7070"],
    "topics": ["orders"],
    "scaleTargetRef": {"name": "orders"},
}
THRESHOLDS = {
    'rota_group_alert_threshold_seconds{alert="RotaLagSecondsHigh"}': 300.0,
    'rota_group_alert_threshold_seconds{alert="RotaGroupStuck"}': 120.0,
}


def series(metrics: Metrics) -> set[str]:
    return {line for line in metrics.text().decode().splitlines() if line.startswith("rota_group")}


def test_decisions_of_the_autoscaler_are_counted_by_direction_and_reason_and_go_with_the_group() -> None:
    metrics = Metrics()
    metrics.update(ORDERS, {"scaling": {"neededReplicas": 9}}, None)
    for before, after, reason in (
        (1, 4, "LoadAboveTarget"),
        (4, 4, "WithinTarget"),
        (4, 2, "LoadBelowTarget"),
    ):
        metrics.scale_decided(ORDERS, before, after, reason)
    metrics.scale_decided(ORDERS, 1, 4, "LoadAboveTarget")
    metrics.scale_decided(PAYMENTS, 0, 1, "OutOfBounds")
    lines = {line for line in metrics.text().decode().splitlines() if line.startswith("rota_scale")}
    names = 'name="orders",namespace="shop"'
    counted = {
        f'rota_scale_decisions_total{{direction="up",{names},reason="LoadAboveTarget"}} 2.0',
        f'rota_scale_decisions_total{{direction="none",{names},reason="WithinTarget"}} 1.0',
        f'rota_scale_decisions_total{{direction="down",{names},reason="LoadBelowTarget"}} 1.0',
    }
    assert counted < lines
    assert of_orders(metrics)['rota_group_replicas{kind="recommended"}'] == 9.0
    metrics.remove(ORDERS)
    remaining = {line for line in metrics.text().decode().splitlines() if line.startswith("rota_scale")}
    assert remaining == lines - counted


def of_orders(metrics: Metrics) -> Mapping[str, float]:
    """The series of ORDERS, by their names and labels without namespace and name."""
    lines = (line.rpartition(" ") for line in series(metrics) if 'name="orders"' in line)
    return {
        name.replace('name="orders",namespace="shop"', "").replace(",}", "}").removesuffix("{}"): float(value)
        for name, _, value in lines
    }


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
        Alerts.model_validate({"lagSeconds": 30, "stuckSeconds": 20}),
    )  # fmt: skip
    names = 'name="orders",namespace="shop"'
    assert series(metrics) == {
        f'rota_group_info{{coordination="Rota",group="shop.orders",{names}}} 1.0',
        f"rota_group_partitions{{{names}}} 12.0",
        f"rota_group_unowned_partitions{{{names}}} 0.0",
        f"rota_group_lag_records{{{names}}} 7.0",
        f'rota_group_replicas{{kind="actual",{names}}} 2.0',
        f'rota_group_condition{{{names},type="Ready"}} 1.0',
        f'rota_group_alert_threshold_seconds{{alert="RotaLagSecondsHigh",{names}}} 30.0',
        f'rota_group_alert_threshold_seconds{{alert="RotaGroupStuck",{names}}} 20.0',
    }


def test_series_change_and_end_with_their_resource_alone() -> None:
    metrics = Metrics()
    metrics.update(ORDERS, {"partitions": 12, "lag": {"total": 7}, "generation": 3}, Alerts())
    metrics.update(PAYMENTS, {"partitions": 1, "generation": 1}, Alerts())
    metrics.update(ORDERS, {"partitions": 13}, Alerts())
    assert of_orders(metrics) == {"rota_group_partitions": 13, "rota_group_rebalances_total": 0, **THRESHOLDS}
    others = {line for line in series(metrics) if 'name="payments"' in line}
    metrics.remove(ORDERS)
    metrics.remove(ORDERS)
    assert series(metrics) == others
    assert len(others) == 4


def test_thresholds_follow_the_spec() -> None:
    metrics = Metrics()
    metrics.update(ORDERS, {}, Alerts())
    assert of_orders(metrics) == THRESHOLDS
    metrics.update(ORDERS, {}, Alerts.model_validate({"lagSeconds": 7}))
    assert of_orders(metrics) == {
        **THRESHOLDS,
        'rota_group_alert_threshold_seconds{alert="RotaLagSecondsHigh"}': 7,
    }


def test_a_suspended_group_has_no_thresholds() -> None:
    suspended = {"suspend": True, "monitoring": {"alerts": {"lagSeconds": 7}}}
    assert alerts_of(parse_spec({**SPEC, **suspended})) is None
    assert alerts_of(parse_spec({**SPEC, **suspended, "suspend": False})) == Alerts.model_validate(
        {"lagSeconds": 7}
    )
    assert alerts_of(None) == Alerts(), "while the spec is invalid"
    metrics = Metrics()
    metrics.update(ORDERS, {"partitions": 1}, Alerts())
    metrics.update(ORDERS, {"partitions": 1}, None)
    assert of_orders(metrics) == {"rota_group_partitions": 1}


def test_the_first_failed_reconcile_is_an_increase() -> None:
    failed = 'rota_operator_reconciles_total{outcome="error"}'
    metrics = Metrics()
    assert f"{failed} 0.0" in metrics.text().decode()
    metrics.reconciled("error", 0.1)
    assert f"{failed} 1.0" in metrics.text().decode()


@pytest.mark.parametrize(
    ("generations", "total"),
    [
        pytest.param([None], None, id="unknown"),
        pytest.param([7], 0, id="nothing-was-observed-yet"),
        pytest.param([7, 7, 8, 8], 1, id="one"),
        pytest.param([7, 10], 3, id="several-between-two-observations"),
        pytest.param([7, None, 9], 2, id="some-while-the-group-was-unknown"),
        pytest.param([7, 8, 1, 3], 3, id="of-a-group-that-was-created-again"),
    ],
)
def test_rebalances_are_counted_by_generation_and_never_fall(
    generations: Sequence[int | None], total: int | None
) -> None:
    metrics = Metrics()
    for generation in generations:
        status = {} if generation is None else {"generation": generation}
        metrics.update(ORDERS, status, Alerts())
    assert of_orders(metrics).get("rota_group_rebalances_total") == total


def test_a_group_that_is_removed_and_created_again_begins_with_no_rebalances() -> None:
    metrics = Metrics()
    for generation in (1, 5):
        metrics.update(ORDERS, {"generation": generation}, Alerts())
    metrics.remove(ORDERS)
    metrics.update(ORDERS, {"generation": 9}, Alerts())
    assert of_orders(metrics)["rota_group_rebalances_total"] == 0


@pytest.mark.process
def test_the_page_follows_prometheus_conventions() -> None:
    metrics = Metrics()
    metrics.reconciled("success", 0.1)
    metrics.update(ORDERS, {"groupId": "g", "partitions": 1, "generation": 1}, Alerts())
    page = metrics.text().decode()
    assert undocumented(page) == set()
    check_metrics(page)
