"""Alerts: each fires above its threshold, and is silent just below it, without its series, and while a group is worked on."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from rota_operator.cluster.metrics import thresholds_of
from rota_operator.spec.model import Alerts
from tests.chart.rendered import of_kind
from tests.support import helm
from tests.support.documented_metrics import labels_by_name
from tests.support.helm import CHART, Object
from tests.support.prometheus.programs import check_rules, run_rule_tests
from tests.support.tree import REPO

pytestmark = pytest.mark.process

FILE = CHART / "files" / "alerts.yaml"
GUIDE = (REPO / "docs/guide/alerts.md").read_text()
RULES: Mapping[str, Object] = {
    rule["alert"]: rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]
}
NAMES = 'namespace="shop",name="orders"'
GROUP = {"namespace": "shop", "name": "orders"}
# Of a scraped operator and coordinator, whose namespace is a label of the target.
PARTS = 'namespace="rota"'
INFO = {f'rota_group_info{{{NAMES},group="g",coordination="Rota"}}': "1x200"}
ON = "--set=monitoring.prometheusRule.enabled=true,monitoring.prometheusRule.labels.team=rota"
SLOTS = "rota_coordinator_slots"
Series = Mapping[str, str]


class Case(NamedTuple):
    """Series of one alert, in promtool's notation with an interval of one minute."""

    fires: Series
    # Just below the threshold.
    below: Series
    # Of one whose series have gone, if the alert is about that.
    gone: Series
    labels: Mapping[str, str]
    # Minutes after which it fires, and when it does not yet.
    at_m: int
    pending_m: int


def of_group(name: str, values: str, labels: str = "") -> Series:
    return {f"{name}{{{NAMES}{labels}}}": values}


def of_sidecars(name: str, label: str, values: Mapping[str, str]) -> Series:
    """The series of two sidecars."""
    return {
        f'{name}{{group="g",{label}="{value}",pod="{pod}"}}': each
        for value, each in values.items()
        for pod in ("orders-0", "orders-1")
    }


def threshold(seconds: int) -> Series:
    return of_group("rota_group_alert_threshold_seconds", f"{seconds}x200", ',alert="RotaLagSecondsHigh"')


def slots(**values: str) -> Series:
    return {f'{SLOTS}{{{PARTS},state="{state}"}}': each for state, each in values.items()}


def replicas(**values: str) -> Series:
    return {f'rota_group_replicas{{{NAMES},kind="{kind}"}}': each for kind, each in values.items()}


def reconciles(error: str) -> Series:
    return {
        f'rota_operator_reconciles_total{{{PARTS},outcome="error"}}': error,
        f'rota_operator_reconciles_total{{{PARTS},outcome="success"}}': "0+10x200",
    }


OPERATOR, COORDINATOR = ({"namespace": "rota", "name": name} for name in ("operator", "coordinator"))
HEARTBEATS, COMMITS = "rota_heartbeats_total", "rota_commits_total"
VERDICTS = 'rota_records_total{group="g",topic="orders",verdict="dead_letter"}'
CASES: Mapping[str, Case] = {
    "RotaGroupStuck": Case(
        of_group("rota_group_condition", "1x200", ',type="Stuck"'),
        of_group("rota_group_condition", "0x200", ',type="Stuck"'),
        {}, GROUP, 1, 0,
    ),
    "RotaLagSecondsHigh": Case(
        {**of_group("rota_group_lag_seconds", "31x200"), **threshold(30)},
        {**of_group("rota_group_lag_seconds", "30x200"), **threshold(30)},
        of_group("rota_group_lag_seconds", "100000x200"), GROUP, 5, 4,
    ),
    "RotaPartitionUnowned": Case(
        {**of_group("rota_group_unowned_partitions", "1x200"), **replicas(desired="2x200")},
        {**of_group("rota_group_unowned_partitions", "0x200"), **replicas(desired="2x200")},
        {}, GROUP, 10, 9,
    ),
    "RotaRebalanceStorm": Case(
        of_group("rota_group_rebalances_total", "0+1.1x200"),
        of_group("rota_group_rebalances_total", "0+1x200"),
        {}, GROUP, 40, 20,
    ),
    "RotaScalingLimited": Case(
        replicas(recommended="5x200", desired="4x200"),
        replicas(recommended="4x200", desired="4x200"),
        replicas(desired="4x200"), GROUP, 15, 14,
    ),
    "RotaCommitsFailing": Case(
        {**INFO, **of_sidecars(COMMITS, "outcome", {"ok": "0+8x200", "UNREACHABLE": "0+1x200"})},
        {**INFO, **of_sidecars(COMMITS, "outcome", {"ok": "0+9x200", "UNREACHABLE": "0+1x200"})},
        # Nothing joins the group's series without the operator.
        of_sidecars(COMMITS, "outcome", {"UNREACHABLE": "0+1x200"}), GROUP, 12, 9,
    ),
    "RotaMemberFenced": Case(
        {**INFO, **of_sidecars(HEARTBEATS, "outcome", {"ok": "0+9x200", "FENCED_INSTANCE_ID": "0x4 1x200"})},
        {**INFO, **of_sidecars(HEARTBEATS, "outcome", {"ok": "0+9x200", "FENCED_INSTANCE_ID": "0x200"})},
        INFO, GROUP, 6, 4,
    ),
    "RotaDeadLetters": Case(
        {**INFO, VERDICTS: "0x4 1x200"}, {**INFO, VERDICTS: "0x200"}, INFO, GROUP, 6, 4
    ),
    "RotaOperatorFailing": Case(reconciles("0+1x200"), reconciles("0+1x12 12x200"), {}, OPERATOR, 18, 15),
    "RotaCoordinatorDown": Case(
        slots(Ready="49x200", Down="1x200", CatchUp="0x200"),
        slots(Ready="50x200", Down="0x200", CatchUp="0x200"),
        {}, COORDINATOR, 2, 1,
    ),
}  # fmt: skip


def firing(folder: Path, series: Series, expected: Mapping[int, Sequence[Mapping[str, str]]]) -> None:
    """Raise if other alerts than the expected ones fire at these minutes."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": f"{minute}m",
                "exp_samples": [
                    {
                        "labels": "ALERTS{"
                        + ",".join(f'{name}="{value}"' for name, value in each.items())
                        + "}",
                        "value": 1,
                    }
                    for each in alerts
                ],
            }
            for minute, alerts in expected.items()
        ],
    }
    file = folder / "test.json"
    file.write_text(json.dumps({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": [test]}))
    run_rule_tests(file)


def alert(name: str, labels: Mapping[str, str]) -> Mapping[str, str]:
    severity = RULES[name]["labels"]["severity"]
    return {"alertname": name, "alertstate": "firing", "severity": severity, **labels}


def test_every_alert_has_its_cases_and_prometheus_takes_them() -> None:
    assert CASES.keys() == RULES.keys()
    assert len(RULES) == 10
    check_rules(FILE)


@pytest.mark.parametrize("name", CASES)
def test_it_fires_above_its_threshold_after_its_time(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    firing(tmp_path, case.fires, {case.pending_m: [], case.at_m: [alert(name, case.labels)]})


@pytest.mark.parametrize("name", CASES)
def test_just_below_its_threshold_it_is_silent(tmp_path: Path, name: str) -> None:
    firing(tmp_path, CASES[name].below, {minute: [] for minute in range(0, 120, 5)})


@pytest.mark.parametrize("name", CASES)
def test_without_its_series_it_is_silent(tmp_path: Path, name: str) -> None:
    firing(tmp_path, CASES[name].gone, {minute: [] for minute in range(0, 120, 5)})


@pytest.mark.parametrize(
    ("name", "series", "at_m"),
    [
        ("RotaOperatorFailing", {**reconciles("0x10 stale"), f'rota_operator_reconciles_total{{{PARTS},outcome="success"}}': "0+1x10 stale"}, 28),
        ("RotaCoordinatorDown", slots(Ready="50x10 stale", Down="0x10 stale"), 14),
    ],
)  # fmt: skip
def test_a_part_that_was_scraped_and_is_not_any_more_is_reported(
    tmp_path: Path, name: str, series: Series, at_m: int
) -> None:
    firing(tmp_path, series, {10: [], at_m: [alert(name, CASES[name].labels)]})


def test_one_of_several_coordinators_may_go_while_the_others_serve_all_slots(tmp_path: Path) -> None:
    one = {f'{SLOTS}{{{PARTS},state="{state}",pod="a"}}': v for state, v in {"Ready": "25x10 stale", "Down": "25x10 stale"}.items()}  # fmt: skip
    other = {f'{SLOTS}{{{PARTS},state="{state}",pod="b"}}': v for state, v in {"Ready": "25x11 50x60", "Down": "25x11 0x60"}.items()}  # fmt: skip
    firing(tmp_path, {**one, **other}, {minute: [] for minute in (5, 10, 13, 20)})


def test_two_operators_during_a_change_of_the_leader_make_one_alert(tmp_path: Path) -> None:
    series = {
        name.replace("{", f'{{pod="{pod}",'): values
        for pod in "ab"
        for name, values in CASES["RotaLagSecondsHigh"].fires.items()
    }
    firing(tmp_path, series, {6: [alert("RotaLagSecondsHigh", GROUP)]})


def test_two_consumergroups_of_one_group_id_on_two_clusters_do_not_fail_the_join(tmp_path: Path) -> None:
    other = {'rota_group_info{namespace="shop",name="other",group="g",coordination="Kafka"}': "1x200"}
    expected = [alert("RotaDeadLetters", GROUP), alert("RotaDeadLetters", {**GROUP, "name": "other"})]
    firing(tmp_path, {**CASES["RotaDeadLetters"].fires, **other}, {6: expected})


QUIET: Mapping[str, Series] = {
    # 12 pods, two rebalances each, within 12 minutes; partitions have no owner for 4 of them, and a few commits are fenced.
    "a rollout": {
        **INFO,
        **threshold(300),
        **of_group("rota_group_rebalances_total", "0x4 0+2x12 24x100"),
        **of_group("rota_group_unowned_partitions", "0x4 3x4 0x100"),
        **of_group("rota_group_lag_seconds", "1x4 10+20x10 1x100"),
        **of_group("rota_group_condition", "0x100", ',type="Stuck"'),
        **replicas(desired="12x100", actual="12x4 13x12 12x100"),
        **of_sidecars(COMMITS, "outcome", {"ok": "0+12x100", "ILLEGAL_GENERATION": "0x4 0+1x12 12x100"}),
        **slots(Ready="50x100", Down="0x100"),
        **reconciles("0x4 1x100"),
    },
    # The operator exports no thresholds and Stuck=False; records get older.
    "a suspension, also that of a reset": {
        **INFO,
        **of_group("rota_group_alert_threshold_seconds", "300x4 stale", ',alert="RotaLagSecondsHigh"'),
        **of_group("rota_group_lag_seconds", "1x4 60+60x100"),
        **of_group("rota_group_condition", "0x100", ',type="Stuck"'),
        **of_group("rota_group_unowned_partitions", "0x100"),
        **of_sidecars(COMMITS, "outcome", {"ok": "0+12x4 48x100", "UNREACHABLE": "0x100"}),
    },
    "a workload that is scaled to zero": {
        **of_group("rota_group_unowned_partitions", "0x4 12x100"),
        **replicas(desired="1x4 0x100", actual="1x4 0x100"),
    },
    # The rate looks back at them as long as at none.
    "a few failed commits of a group without others": {
        **INFO,
        **of_sidecars(COMMITS, "outcome", {"ok": "5x100", "ILLEGAL_GENERATION": "0x4 1 2 2x100"}),
    },
    "an upgrade of the coordinator": {**slots(Ready="50x4 0x1 50x100", Down="0x4 50x1 0x100")},
}


@pytest.mark.parametrize("work", QUIET)
def test_none_fires_during(tmp_path: Path, work: str) -> None:
    firing(tmp_path, QUIET[work], {minute: [] for minute in range(60)})


def test_rules_read_documented_metrics_and_labels_only() -> None:
    known = labels_by_name()
    for name, rule in RULES.items():
        selectors = re.findall(r"(rota_\w+)(?:\{([^}]*)\})?", rule["expr"])
        assert selectors, name
        for metric, matchers in selectors:
            assert set(re.findall(r"(\w+)!?=", matchers)) <= known[metric], (name, metric)


def test_thresholds_are_exported_by_names_of_alerts() -> None:
    assert thresholds_of(Alerts()).keys() <= RULES.keys()


@pytest.mark.parametrize("name", RULES)
def test_its_runbook_says_what_it_means_and_what_to_do(name: str) -> None:
    rule = RULES[name]
    assert rule["annotations"]["runbook_url"].endswith(f"/docs/guide/alerts#{name.lower()}")
    assert rule["labels"]["severity"] in {"warning", "critical"}
    section = GUIDE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    assert all(f"**{part}**" in section for part in ("Meaning.", "Look at.", "Do."))
    assert (
        f"| [`{name}`](#{name.lower()}) | {rule['labels']['severity']} | {rule.get('for', '0m')} |" in GUIDE
    )


def test_the_chart_has_the_same_rules_and_by_default_none() -> None:
    assert of_kind(helm.render(), "PrometheusRule") == []
    [rule] = of_kind(helm.render(ON), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(FILE.read_text())
    assert rule["metadata"]["labels"]["team"] == "rota"


def test_runbooks_may_be_on_a_page_of_ones_own() -> None:
    page = "https://wiki.example.com/rota?view=alerts"
    [rule] = of_kind(
        helm.render(ON, f"--set-string=monitoring.prometheusRule.runbookUrl={page}"), "PrometheusRule"
    )
    rules = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    assert {each["alert"]: each["annotations"]["runbook_url"] for each in rules} == {
        name: f"{page}#{name.lower()}" for name in RULES
    }


def test_a_release_without_coordinator_has_no_alert_about_one() -> None:
    [rule] = of_kind(helm.render(ON, "--set=coordinator.enabled=false"), "PrometheusRule")
    names = {each["alert"] for group in rule["spec"]["groups"] for each in group["rules"]}
    assert names == RULES.keys() - {"RotaCoordinatorDown"}
