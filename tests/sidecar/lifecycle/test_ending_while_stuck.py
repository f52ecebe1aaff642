"""A sidecar whose partitions do not move on ends within its drain time after SIGTERM, and its member leaves the group."""

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator, serving
from tests.support.records import fill
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.process
RECORDS = 20
DRAIN_S = 3
# For a busy machine. It is less than the time that revoking takes when no drain time limits it.
SLACK_S = 5
FLAGS = (f"--drain-timeout-ms={DRAIN_S}000", "--retries=0", "--commit-interval-ms=60000")


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


def with_application(
    folder: Path, coordinator: Coordinator, group: str, *flags: str, application: Sequence[str] = ()
) -> tuple[Deliverer, App]:
    coordinator.make_topic(group, 1)
    fill(coordinator.address, group, 1, RECORDS)
    more = (f"--topics={group}", *FLAGS, *flags)
    sidecar = Deliverer(folder, f"rota://{coordinator.address}", group, more)
    return sidecar, App(folder, sidecar.address, application)


def has_in_flight(sidecar: Deliverer, records: int) -> bool:
    return sidecar.metrics().get(f'rota_inflight_records{{group="{sidecar.group}"}}') == records


def test_with_records_that_get_no_verdict(tmp_path: Path, coordinator: Coordinator) -> None:
    sidecar, app = with_application(tmp_path, coordinator, "held", application=["--holds", "--credit=5"])
    with delivering(sidecar), attached(app):
        sidecar.wait_until(lambda: has_in_flight(sidecar, 5))
        assert sidecar.terminate(within_s=DRAIN_S + SLACK_S) == 0
        assert coordinator.members_of("held") == 0


def test_with_an_application_that_stands_still(tmp_path: Path, coordinator: Coordinator) -> None:
    sidecar, app = with_application(tmp_path, coordinator, "still")
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) == RECORDS)
        app.signal(signal.SIGSTOP)
        assert sidecar.terminate(within_s=DRAIN_S + SLACK_S) == 0
        assert coordinator.members_of("still") == 0


def test_with_dead_letters_that_cannot_be_written(tmp_path: Path, coordinator: Coordinator) -> None:
    sidecar, app = with_application(
        tmp_path,
        coordinator,
        "dead_letters",
        "--dead-letter-topic=not-there",
        application=['--rules={"7": "dead-letter"}'],
    )
    with delivering(sidecar), attached(app):
        sidecar.wait_until(lambda: any("cannot be written" in line["message"] for line in sidecar.said))
        assert sidecar.terminate(within_s=DRAIN_S + SLACK_S) == 0
        assert coordinator.members_of("dead_letters") == 0


def test_with_a_coordinator_that_is_away(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        sidecar, app = with_application(tmp_path, coordinator, "away", "--session-timeout-ms=45000")
        with delivering(sidecar), attached(app):
            app.wait_until(lambda: len(app.done) == RECORDS)
            coordinator.kill()
            assert sidecar.terminate(within_s=DRAIN_S + SLACK_S) == 0
