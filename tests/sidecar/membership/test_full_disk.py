"""A sidecar whose `--state-folder` is on a full disk: it says so, goes on, and is remembered when there is room again."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rota_sidecar.membership.state_file import FILE
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator, serving
from tests.support.records import committed, fill
from tests.support.sidecar import Deliverer, Sidecar, delivering, running
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.process
PARTITIONS = 4
RECORDS = 50


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


class Story:
    """A sidecar on a small disk, and its application."""

    def __init__(self, folder: Path, coordinator: Coordinator, group: str, disk: SmallDisk) -> None:
        coordinator.make_topic(group, PARTITIONS)
        self.disk = disk
        self.group = group
        self._address = coordinator.address
        self._records = 0
        self.state = disk.seen / "state"
        flags = [
            f"--topics={group}",
            "--commit-interval-ms=200",
            "--topics-refresh-ms=60000",
            f"--state-folder={disk.mount / 'state'}",
        ]
        self.sidecar = Deliverer(folder, f"rota://{coordinator.address}", group, flags)
        self.sidecar.inside = disk.inside
        self.app = App(folder, self.sidecar.address)
        self.other = Sidecar(
            folder, f"rota://{coordinator.address}", group, [f"--topics={group}"], name="other"
        )

    def flow(self) -> None:
        """More records for each partition: they are done, once each, and committed."""
        fill(self._address, self.group, PARTITIONS, RECORDS)
        self._records += RECORDS
        ends = {(self.group, partition): self._records for partition in range(PARTITIONS)}
        self.sidecar.wait_until(lambda: committed(self._address, self.group) == ends)
        everything = [(*partition, offset) for partition in ends for offset in range(self._records)]
        assert sorted(self.app.done) == everything

    def rebalance(self) -> None:
        """Another member comes, and goes."""
        with running(self.other):
            self.other.wait_until_it_has(PARTITIONS // 2)
            assert self.other.terminate() == 0
        self.app.wait_until(lambda: len(self.app.partitions) == PARTITIONS)

    def come_back(self) -> None:
        """Kill the process, and start it again with the same folder."""
        self.sidecar.kill()
        self.sidecar.start()
        self.sidecar.wait_until(lambda: self.sidecar.has_said("joined"))

    @property
    def kept(self) -> Mapping[str, object]:
        """Return the files in its folder."""
        kept: Mapping[str, object] = json.loads((self.state / FILE).read_text())
        return kept

    @property
    def joined(self) -> str:
        """Return its last member id and generation."""
        return self._said("joined")[-1]

    def is_kept(self) -> bool:
        """Return True if the state file in its folder has that membership."""
        file = self.state / FILE
        return (
            file.exists()
            and self.joined == f"joined generation {self.kept['generation']} as {self.kept['member_id']}"
        )

    @property
    def problems(self) -> list[str]:
        """Return the reported problems, in order."""
        return self._said("warning")

    def _said(self, event: str) -> list[str]:
        return [line["message"] for line in self.sidecar.said if line["event"] == event]


@pytest.fixture
def story(tmp_path: Path, coordinator: Coordinator, request: pytest.FixtureRequest) -> Iterator[Story]:
    with small_disk(tmp_path) as disk:
        yield Story(tmp_path, coordinator, str(request.node.name), disk)


def test_a_disk_that_becomes_full_is_said_once_and_the_member_goes_on(story: Story) -> None:
    with delivering(story.sidecar), attached(story.app):
        story.flow()
        story.sidecar.wait_until(story.is_kept)
        before = story.kept
        story.disk.fill()
        story.rebalance()
        story.rebalance()
        story.flow()
        unwritable = (
            f"{story.disk.mount}/state/{FILE} cannot be written (No space left on device): free disk space and "
            "check the permissions; until then a restarted sidecar joins only after its session has timed out"
        )
        assert story.problems == [unwritable]
        assert story.sidecar.is_ready
        assert story.kept == before, "what was there stays whole"
        assert not (story.state / f"{FILE}.new").exists()
        story.disk.clear()
        story.sidecar.wait_until(lambda: story.sidecar.has_said("kept"))
        assert story.is_kept()
        joined = story.joined
        story.come_back()
        assert story.joined == joined, "nobody had to wait for its session"
        story.flow()


def test_who_is_killed_on_a_full_disk_comes_back_as_the_same_member_and_loses_nothing(story: Story) -> None:
    with delivering(story.sidecar), attached(story.app):
        story.flow()
        story.sidecar.wait_until(story.is_kept)
        story.disk.fill()
        story.rebalance()
        story.come_back()
        assert str(story.kept["member_id"]) in story.joined
        story.flow()
        assert story.sidecar.terminate() == 0
        assert not (story.state / FILE).exists()


def test_a_disk_that_is_full_from_the_start_is_said_and_keeps_nobody_from_working(story: Story) -> None:
    story.disk.fill()
    with delivering(story.sidecar), attached(story.app):
        story.flow()
        unusable = (
            f"--state-folder {story.disk.mount}/state cannot be used (No space left on device): free disk space; until "
            "then a restarted sidecar joins only after its session has timed out"
        )
        assert story.problems == [unusable]
        assert story.sidecar.is_ready
        story.disk.clear()
        story.sidecar.wait_until(lambda: story.sidecar.has_said("kept"))
        assert story.is_kept()
        joined = story.joined
        story.come_back()
        assert story.joined == joined
        story.flow()


def test_a_bare_member_tells_both_as_events(tmp_path: Path, coordinator: Coordinator) -> None:
    coordinator.make_topic("events", PARTITIONS)
    with small_disk(tmp_path) as disk:
        flags = ["--topics=events", f"--state-folder={disk.mount / 'state'}"]
        member = Sidecar(tmp_path, f"rota://{coordinator.address}", "bare", flags)
        member.inside = disk.inside
        disk.fill()
        with running(member):
            assert "free disk space" in member.wait("problem")["sentence"]
            assert len(member.wait_until_it_has(PARTITIONS)) == PARTITIONS
            disk.clear()
            member.wait("kept")
            assert (member.count("problem"), member.count("kept")) == (1, 1)
