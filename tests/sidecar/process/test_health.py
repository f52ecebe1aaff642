"""Readiness, drains and metrics of a sidecar with an application beside it."""

import signal
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator, serving
from tests.support.documented_metrics import undocumented
from tests.support.records import batch, committed, fill, produce
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.process
RECORDS = 50


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.fixture
def topic(coordinator: Coordinator, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions for each test, with records in both; a group of the same name."""
    name = str(request.node.name).removeprefix("test_")[:60]
    coordinator.make_topic(name, 2)
    fill(coordinator.address, name, 2, RECORDS)
    return name


def sidecar_on(folder: Path, coordinator: Coordinator, topic: str, *flags: str) -> Deliverer:
    more = (f"--topics={topic}", "--commit-interval-ms=200", *flags)
    return Deliverer(folder, f"rota://{coordinator.address}", topic, more)


def test_it_is_ready_when_it_has_partitions_and_an_application(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic)
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar):
        sidecar.wait_until(lambda: "no application is attached" in sidecar.unready_because)
        assert sidecar.ask("/livez") == (HTTPStatus.OK, "alive")
        assert sidecar.ask("/nowhere")[0] == HTTPStatus.NOT_FOUND
        with attached(app):
            sidecar.wait_until(lambda: sidecar.is_ready)
        sidecar.wait_until(lambda: not sidecar.is_ready)


def test_a_hung_application_loses_its_partitions_and_gets_them_when_it_goes_on(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic, "--processing-timeout-ms=3000")
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) == 2 * RECORDS)
        app.signal(signal.SIGSTOP)
        produce(coordinator.address, topic, 0, batch(["stuck"]))
        sidecar.wait_until(lambda: "has given no verdict on a record" in sidecar.unready_because)
        sidecar.wait_until(lambda: sidecar.has_said("left"))
        assert sidecar.metrics()[f'rota_assigned_partitions{{group="{topic}"}}'] == 0
        app.signal(signal.SIGCONT)
        sidecar.wait_until(lambda: sidecar.is_ready)
        sidecar.wait_until(lambda: committed(coordinator.address, topic).get((topic, 0)) == RECORDS + 1)


def test_a_record_that_failed_permanently_without_a_dead_letter_topic_is_reported(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic, "--retries=1", "--backoff-ms=10")
    app = App(tmp_path, sidecar.address, ['--rules={"7": "retry"}'])
    with delivering(sidecar), attached(app):
        sidecar.wait_until(lambda: f"{topic}-0: offset 7 failed permanently" in sidecar.unready_because)
        sidecar.wait_until(lambda: committed(coordinator.address, topic).get((topic, 0)) == 7)


def test_drain_answers_when_everything_in_hand_is_done(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic, "--commit-interval-ms=60000")
    app = App(tmp_path, sidecar.address, ["--holds", "--credit=10"])
    with delivering(sidecar), attached(app):
        in_flight = f'rota_inflight_records{{group="{topic}"}}'
        sidecar.wait_until(lambda: sidecar.metrics()[in_flight] == 10)
        answers: list[tuple[int, str]] = []
        asking = [threading.Thread(target=lambda: answers.append(sidecar.drain())) for _ in range(2)]
        for each in asking:
            each.start()
        sidecar.wait_until(lambda: "draining: a drain was requested" in sidecar.unready_because)
        assert answers == []
        app.signal(signal.SIGUSR1)
        for each in asking:
            each.join()
        assert answers == [(HTTPStatus.OK, "drained")] * 2
        assert len(app.done) == 10
        assert sum(committed(coordinator.address, topic).values()) == 10
        assert sidecar.terminate() == 0


def test_a_drained_member_leaves_when_its_application_says_goodbye_and_rejoins_when_the_drain_expires(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    """As in a pod that terminates: the sidecar is told so only after the application has ended."""
    sidecar = sidecar_on(tmp_path, coordinator, topic)
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) == 2 * RECORDS)
        assert sidecar.drain("for_ms=600000") == (HTTPStatus.OK, "drained")
        assert coordinator.members_of(topic) == 1
        assert app.terminate() == 0
        sidecar.wait_until(lambda: coordinator.members_of(topic) == 0)
        assert committed(coordinator.address, topic) == {(topic, 0): RECORDS, (topic, 1): RECORDS}
        assert sidecar.drain("for_ms=1")[0] == HTTPStatus.OK
        sidecar.wait_until(lambda: coordinator.members_of(topic) == 1)
        assert sidecar.terminate() == 0
        assert coordinator.members_of(topic) == 0


def test_a_drained_sidecar_that_has_left_the_group_ends_on_sigterm(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic)
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) == 2 * RECORDS)
        assert sidecar.drain()[0] == HTTPStatus.OK
        assert app.terminate() == 0
        sidecar.wait_until(lambda: coordinator.members_of(topic) == 0)
        assert sidecar.terminate() == 0


def test_a_static_member_stays_in_the_group_when_its_application_says_goodbye_during_a_drain(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic, "--group-instance-id=first")
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) == 2 * RECORDS)
        assert sidecar.drain()[0] == HTTPStatus.OK
        assert app.terminate() == 0
        sidecar.wait_until(lambda: sidecar.has_said("detached"))
        assert sidecar.terminate() == 0
        assert coordinator.members_of(topic) == 1


def test_a_drain_that_takes_too_long_says_what_is_left(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic, "--drain-timeout-ms=300", "--leave-timeout-ms=300")
    app = App(tmp_path, sidecar.address, ["--holds", "--credit=10"])
    with delivering(sidecar), attached(app):
        sidecar.wait_until(lambda: sidecar.metrics()[f'rota_inflight_records{{group="{topic}"}}'] == 10)
        status, text = sidecar.drain()
        assert status == HTTPStatus.GATEWAY_TIMEOUT
        assert text.startswith("10 records are still in flight")
        assert sidecar.terminate() == 0


def test_metrics_say_how_it_fares_and_end_with_the_partitions(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic)
    app = App(tmp_path, sidecar.address, ["--holds", "--credit=10"])
    of_0 = f'{{group="{topic}",partition="0",topic="{topic}"}}'
    with delivering(sidecar):
        with attached(app):
            sidecar.wait_until(lambda: sidecar.metrics().get(f"rota_lag_records{of_0}") == RECORDS)
            in_flight = f'rota_inflight_records{{group="{topic}"}}'
            sidecar.wait_until(lambda: sidecar.metrics()[in_flight] == 10)
            held = sidecar.metrics()
            assert held[f"rota_lag_seconds{of_0}"] > 1_000_000, "its records are of 2023"
            assert held[f'rota_assigned_partitions{{group="{topic}"}}'] == 2
            assert held[f'rota_member_state{{group="{topic}",state="Stable"}}'] == 1
            assert held[f'rota_member_state{{group="{topic}",state="Down"}}'] == 0
            assert held[f"rota_last_progress_timestamp_seconds{of_0}"] > 1_700_000_000
            app.signal(signal.SIGUSR1)
            sidecar.wait_until(lambda: sidecar.metrics()[f"rota_lag_records{of_0}"] == 0)
            sidecar.wait_until(lambda: sidecar.metrics()[f"rota_lag_seconds{of_0}"] == 0)
            heartbeats = f'rota_heartbeats_total{{group="{topic}",outcome="ok"}}'
            sidecar.wait_until(lambda: sidecar.metrics()[heartbeats] >= 1)
            assert undocumented(sidecar.ask("/metrics")[1]) == set()
            done = sidecar.metrics()
            verdicts = f'rota_records_total{{group="{topic}",topic="{topic}",verdict="ack"}}'
            assert done[verdicts] == 2 * RECORDS
            assert done[f'rota_commits_total{{group="{topic}",outcome="ok"}}'] >= 2
            assert done[f'rota_rebalances_total{{group="{topic}",kind="assigned"}}'] == 1
            assert done[f'rota_processing_seconds_count{{group="{topic}"}}'] >= 2
            assert done[f'rota_revoke_seconds_count{{group="{topic}"}}'] == 0
        other = Deliverer(
            tmp_path, f"rota://{coordinator.address}", topic, (f"--topics={topic}",), name="other"
        )
        with delivering(other):
            other.wait_until(lambda: other.metrics()[f'rota_assigned_partitions{{group="{topic}"}}'] == 1)
            kept = sidecar.metrics()
            assert sum(name.startswith("rota_lag_records") for name in kept) == 1
            assert kept[f'rota_revoke_seconds_count{{group="{topic}"}}'] == 1
