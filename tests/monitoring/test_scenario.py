"""
One scenario on processes, from the first record to the end of the operator, as a real Prometheus sees it.

Lag, a member that is stuck, dead letters, a member that is fenced, a storm of rebalances, a group without pods, a coordinator that is
killed, commits that are refused, an operator that is killed: each phase ends when Prometheus shows its values and its alert. In
the end each alert of the chart has fired, and none for anything but what happened in its phase.
"""

import math
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rota_operator.cluster.kinds import STATEFUL_SET
from tests.chart.test_alerts import RULES
from tests.chart.test_dashboard import QUERIES, asked
from tests.monitoring import expected
from tests.monitoring.stage import (
    DEAD_LETTERS,
    IDLE,
    IDLE_TOPIC,
    NAME,
    NEVER_S,
    OLD_MS,
    PARTITIONS,
    PODS,
    POISON,
    WITHIN_S,
    Stage,
    staged,
)
from tests.support.documented_metrics import OF_QUERIES, labels_by_name
from tests.support.processes import steady_ms, wait_for
from tests.support.prometheus.server import Prometheus
from tests.support.records import values_in

# The metadata of a sidecar's commit is longer.
SHORT_METADATA = "--offset-metadata-max-length=4"
FAILED = 1
NOT_FIRING = 'absent(ALERTS{{alertname="{}",alertstate="firing"}})'
# Alerts that end with their cause; others look back at some minutes.
ENDING = ("RotaLagSecondsHigh", "RotaGroupStuck", "RotaPartitionUnowned")
# Longer than the scenario.
ALL_OF_IT = "1h"


class Phase(NamedTuple):
    """Its alert, and its times by Prometheus' clock, in seconds."""

    alert: str
    # The ConsumerGroup or the part that the alert is about.
    of: str
    began_s: float
    # When its cause was over; never, if that lasts until the end.
    over_s: float = math.inf


class Firing(NamedTuple):
    """One time that an alert fired: when its condition began to hold and when it fired first and last, in seconds."""

    alert: str
    of: str
    since_s: float
    first_s: float
    last_s: float


class Script:
    """The phases that were played."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.phases: list[Phase] = []
        self.took: list[str] = []
        self._since_ms = steady_ms()

    @contextmanager
    def phase(self, alert: str, of: str = NAME) -> Iterator[None]:
        """Cause an alert within the block; returns when it fires."""
        began_s = now_s(self.stage.prometheus)
        yield
        self.stage.wait_for(f'ALERTS{{alertname="{alert}",alertstate="firing",name="{of}"}}')
        self.phases.append(Phase(alert, of, began_s))

    def end(self, *queries: str) -> None:
        """Return once these queries have answers; the cause of the last alert is over then."""
        self.stage.wait_for(*queries)
        self.phases[-1] = self.phases[-1]._replace(over_s=now_s(self.stage.prometheus))
        self.note(self.phases[-1].alert)

    def note(self, what: str) -> None:
        """Note how long something took."""
        until_ms = steady_ms()
        self.took.append(f"{what} {(until_ms - self._since_ms) / 1000:.1f}")
        self._since_ms = until_ms


def now_s(prometheus: Prometheus) -> float:
    return prometheus.query("vector(time())")[0].value


def lag(script: Script) -> None:
    stage = script.stage
    with script.phase("RotaLagSecondsHigh"):
        stage.load(*map(str, range(expected.OLD_RECORDS)), age_ms=OLD_MS)
        stage.wait_for(*expected.LAGGING)
    stage.signal_apps(signal.SIGUSR1)
    script.end(*expected.CONSUMED)


def stuck_member(script: Script) -> None:
    stage = script.stage
    with script.phase("RotaGroupStuck"):
        stage.signal_apps(signal.SIGSTOP)
        stage.set_thresholds(lag_s=NEVER_S, stuck_s=1)
        stage.load(*map(str, range(expected.STUCK_RECORDS)))
        stage.wait_for(*expected.STUCK)
    stage.signal_apps(signal.SIGCONT)
    script.end(*expected.CONTINUED)
    stage.set_thresholds(lag_s=NEVER_S, stuck_s=NEVER_S)


def dead_letters(script: Script) -> None:
    stage = script.stage
    with script.phase("RotaDeadLetters"):
        stage.load(*[POISON] * expected.POISONED)
        stage.wait_for(*expected.POISON_REJECTED)
    written = [
        each
        for number in range(PARTITIONS)
        for each in values_in(stage.coordinator.address, DEAD_LETTERS, number)
    ]
    assert written == [POISON] * PARTITIONS * expected.POISONED
    script.end()


def fenced_member(script: Script) -> None:
    stage = script.stage
    sidecar = stage.follower()
    with stage.rival(sidecar.name) as rival:
        with script.phase("RotaMemberFenced"):
            rival.join()
            assert sidecar.process.wait(within_s=WITHIN_S) == FAILED
            # As the kubelet does.
            sidecar.begin_start()
            stage.wait_for(*expected.FENCED)
        rival.leave()
    script.end(*expected.UNFENCED)


def storm(script: Script) -> None:
    stage = script.stage
    with script.phase("RotaRebalanceStorm"), stage.rival(None) as rival:

        def rebalance_again() -> bool:
            rival.join()
            rival.leave()
            return bool(stage.prometheus.query('ALERTS{alertname="RotaRebalanceStorm",alertstate="firing"}'))

        wait_for("the storm is seen", rebalance_again, within_s=WITHIN_S)
    script.end(*expected.STORM, *expected.AFTER_STORM, *expected.UNFENCED)


def members_beside_a_group_without_pods(script: Script) -> None:
    """Play what happens to members while another group waits for its pods, which never start."""
    stage = script.stage
    with script.phase("RotaPartitionUnowned", IDLE):
        stage.apply_group(IDLE, IDLE_TOPIC)
        for play in (dead_letters, fenced_member, storm):
            play(script)
        stage.wait_for(*expected.WITHOUT_PODS)
    # Scaled to zero.
    stage.edit(STATEFUL_SET, IDLE, {"spec": {"replicas": 0}})
    script.end(*expected.RECOVERED, *(NOT_FIRING.format(alert) for alert in ENDING))


def killed_coordinator(script: Script) -> None:
    stage = script.stage
    with script.phase("RotaCoordinatorDown", "coordinator"):
        stage.coordinator.kill()
    stage.coordinator.start(SHORT_METADATA)
    script.end(NOT_FIRING.format("RotaCoordinatorDown"), f"rota_coordinator_members == {len(PODS)}")


def refused_commits(script: Script) -> None:
    stage = script.stage
    with script.phase("RotaCommitsFailing"):
        stage.load("not committed")
        stage.wait_for(*expected.COMMITS_REFUSED)
    script.note("RotaCommitsFailing")


def killed_operator(script: Script) -> None:
    with script.phase("RotaOperatorFailing", "operator"):
        script.stage.operator.kill()
    # Series of ConsumerGroups end with their operator.
    script.end("absent(rota_group_info)")


def firings(prometheus: Prometheus) -> list[Firing]:
    """All times that alerts have fired; one goes on as long as its condition has held since the same time."""
    # Before the other query: rules are evaluated between the two.
    fired = prometheus.history('ALERTS{alertstate="firing"}', ALL_OF_IT)
    since = {
        (each.labels["alertname"], each.labels["name"], at_s): value
        for each in prometheus.history("ALERTS_FOR_STATE", ALL_OF_IT)
        for at_s, value in each.values.items()
    }
    found: dict[tuple[str, str, float], list[float]] = {}
    for each in fired:
        alert, of = each.labels["alertname"], each.labels["name"]
        for at_s in each.values:
            found.setdefault((alert, of, since[alert, of, at_s]), []).append(at_s)
    return [Firing(*key, min(times), max(times)) for key, times in found.items()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as found:
        yield found


@pytest.mark.process
@pytest.mark.timeout(600)
def test_each_metric_and_each_alert_shows_what_happens(stage: Stage, report: list[str]) -> None:
    script = Script(stage)
    stage.wait_for(*expected.AT_REST)
    script.note("at rest")
    for play in (
        lag, stuck_member, members_beside_a_group_without_pods, killed_coordinator, refused_commits
    ):  # fmt: skip
        play(script)
    # While a lag is unknown, as after the coordinator's start, it has no series.
    stage.wait_for(*map(asked, QUERIES))
    stage.operator.check()
    killed_operator(script)
    report.append(f"monitoring scenario, seconds: {', '.join(script.took)}")

    phases = {each.alert: each for each in script.phases}
    assert phases.keys() == RULES.keys() - expected.NOT_YET.keys()
    fired = firings(stage.prometheus)
    assert {each.alert for each in fired} == phases.keys()
    assert [each for each in fired if not is_within(each, phases[each.alert])] == []


def is_within(firing: Firing, phase: Phase) -> bool:
    """
    Return whether an alert fires for what happened in its phase.

    It may fire more than once: it ends with its series when a scrape comes too late, and what its rule looks back at is still there.
    """
    # A minute of the chart's rule is a second here.
    looks_back_s = max(map(int, re.findall(r"\[(\d+)m\]", RULES[firing.alert]["expr"])), default=0)
    return firing.of == phase.of and phase.began_s <= firing.first_s <= phase.over_s + looks_back_s


def test_each_documented_metric_has_a_value_in_the_scenario() -> None:
    names = {
        re.sub("_(bucket|sum|count)$", "", name)
        for each in expected.ALL
        for name in re.findall(r"rota_\w+", each)
    }
    assert names == labels_by_name().keys() - OF_QUERIES


def test_what_has_no_source_yet_is_named() -> None:
    assert expected.NOT_YET.keys() <= RULES.keys()
