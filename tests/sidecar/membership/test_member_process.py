"""The sidecar as a process, on Rota's coordinator: partitions shared, given up and taken over; commands and events."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.json_member.lines import LINE_BYTES_MAX
from tests.support.processes import wait_for
from tests.support.sidecar import WITHIN_S, Sidecar, flat, running, settle
from tests.support.tree import REPO

pytestmark = pytest.mark.process
PARTITIONS = 6
EVENTS = ("--topics=events",)
STATIC = "--group-instance-id=orders-0"

ENDLESS = """
import threading

class Endless:
    name, cooperative = "endless", True

    def assign(self, group):
        threading.Event().wait()
"""


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        running.make_topic("events", PARTITIONS)
        yield running


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group for each test."""
    return str(request.node.name).removeprefix("test_")[:80]


@pytest.fixture
def servers(coordinator: Coordinator) -> str:
    return f"rota://{coordinator.address}"


@pytest.mark.alone
def test_two_members_share_and_who_leaves_is_followed_at_once(
    tmp_path: Path, servers: str, group: str
) -> None:
    first, second = (Sidecar(tmp_path, servers, group, name=name) for name in ("first", "second"))
    with running(first):
        first.wait_until_it_has(PARTITIONS)
        with running(second):
            kept, taken = first.wait_until_it_has(3), second.wait_until_it_has(3)
            assert not kept & taken
            moved = first.wait("revoked")
            assert flat(moved["partitions"]) == taken, "cooperative: what stays is not touched"
            assert second.terminate() == 0
            left_at_ms = second.wait("stopped")["monotonic_ms"]
            first.wait_until_it_has(PARTITIONS)
            taken_over = first.wait("assigned", lambda event: bool(event["partitions"]))
            assert flat(taken_over["partitions"]) == taken
            assert taken_over["monotonic_ms"] - left_at_ms < 1_000
            assert taken_over["generation"] > moved["generation"]
            assert taken_over["incarnation"] == moved["incarnation"] > 0
        assert first.terminate() == 0
        assert first.count("problem") == second.count("problem") == 0


def test_what_is_committed_is_fetched_back_and_late_commits_are_refused(
    tmp_path: Path, servers: str, group: str
) -> None:
    sidecar = Sidecar(tmp_path, servers, group)
    with running(sidecar):
        tenure = sidecar.wait("assigned")["tenure"]
        offsets = {("events", number): 10 + number for number in range(PARTITIONS)}
        assert sidecar.commit(offsets, metadata="so far") == {}
        assert sidecar.fetch() == offsets
        assert sidecar.commit({("events", 0): 99}, tenure=tenure) == {}
        assert sidecar.commit({("events", 0): 100}, tenure=tenure + 1) == {
            ("events", 0): "ILLEGAL_GENERATION"
        }
        assert sidecar.commit({("others", 0): 1}) == {("others", 0): "ILLEGAL_GENERATION"}
        assert sidecar.fetch()["events", 0] == 99


def test_a_bad_line_is_answered_and_changes_nothing(tmp_path: Path, servers: str, group: str) -> None:
    sidecar = Sidecar(tmp_path, servers, group)
    with running(sidecar):
        sidecar.wait_until_it_has(PARTITIONS)
        for line, message in (
            ("no json", "the line is no JSON"),
            (
                json.dumps({"command": "assignors", "names": ["fair"]}),
                "unknown strategy fair; expected one of",
            ),
            ("x" * (LINE_BYTES_MAX + 1), "the line is too long"),
        ):
            sidecar.say(line)
            assert message in sidecar.wait("refused")["sentence"]
        assert sidecar.ask("commti")["sentence"] == "there is no command commti"
        sidecar.close_input()
        sidecar.signal(signal.SIGTERM)
        assert flat(sidecar.wait("revoked")["partitions"]) == {
            ("events", number) for number in range(PARTITIONS)
        }
        assert sidecar.wait_for_exit() == 0
        assert sidecar.count("assigned") == 1


def test_with_manual_acknowledgement_partitions_go_when_they_are_let_go(
    tmp_path: Path, servers: str, group: str
) -> None:
    first = Sidecar(tmp_path, servers, group, [*EVENTS, "--acknowledge=manual"], name="first")
    second = Sidecar(tmp_path, servers, group, name="second")
    with running(first):
        first.wait_until_it_has(PARTITIONS)
        with running(second):
            revoking = first.wait("revoking")
            assert 0 < revoking["within_ms"] <= 300_000
            going = flat(revoking["partitions"])
            assert first.partitions >= going
            assert first.commit(dict.fromkeys(going, 7)) == {}, "what was finished is committed first"
            first.send("revoked", revocation=revoking["revocation"])
            assert second.wait_until_it_has(len(going)) == going
            assert second.fetch() == dict.fromkeys(going, 7)
            first.send("stop")
            last = first.wait("revoking")
            first.send("revoked", revocation=last["revocation"])
            assert first.wait("stopped")["reason"] == "told to stop"
            assert first.wait_for_exit() == 0
            second.wait_until_it_has(PARTITIONS)


def test_it_leaves_and_joins_again_with_other_topics_and_strategies(
    tmp_path: Path, coordinator: Coordinator, servers: str, group: str
) -> None:
    sidecar = Sidecar(tmp_path, servers, group, ["--topic-pattern=never.*"])
    with running(sidecar):
        assert sidecar.wait("assigned")["partitions"] == {}
        sidecar.send("subscribe", pattern=f"{group}.*")
        coordinator.make_topic(f"{group}-a", 2)
        sidecar.wait_until_it_has(2)
        # In two steps: what the members have in common must not change at once.
        sidecar.send("assignors", names=["range", "cooperative-sticky"])
        sidecar.wait("joined", lambda event: event["assignor"] == "range")
        sidecar.send("assignors", names=["range"])
        sidecar.wait("joined", lambda event: event["assignor"] == "range")
        sidecar.send("rates", rates=[{"topic": f"{group}-a", "partition": 0, "rate": 12.5}])
        sidecar.send("leave")
        sidecar.wait("state", lambda event: event["state"] == "Down")
        assert sidecar.partitions == set()
        assert sidecar.commit({("events", 0): 1}) == {("events", 0): "UNKNOWN_MEMBER_ID"}
        sidecar.send("subscribe", topics=["events"])
        sidecar.send("join")
        sidecar.wait_until_it_has(PARTITIONS)


def kept_in(folder: Path) -> dict[str, Any]:
    """Return the membership that it would resume after a crash."""
    file = folder / "state" / "member.json"
    return json.loads(file.read_text()) if file.exists() else {"generation": None}


def test_after_a_crash_of_the_sidecar_alone_it_goes_on_as_the_same_member(
    tmp_path: Path, servers: str, group: str
) -> None:
    flags = [*EVENTS, f"--state-folder={tmp_path}/state", "--session-timeout-ms=60000"]
    crashes, other = Sidecar(tmp_path, servers, group, flags), Sidecar(tmp_path, servers, group, name="other")
    with running(crashes, other):
        had = crashes.wait_until_it_has(3)
        other.wait_until_it_has(3)
        settle(crashes, other)
        before = crashes.events[-1]
        seen = len(other.events)
        # It is written down beside the loop, a moment after it is told.
        wait_for(
            "its state", lambda: kept_in(tmp_path)["generation"] == before["generation"], within_s=WITHIN_S
        )
        crashes.kill()
        crashes.start()
        assert crashes.wait_until_it_has(3) == had
        after = crashes.wait("joined")
        assert (after["member_id"], after["generation"]) == (before["member_id"], before["generation"])
        assert crashes.commit(dict.fromkeys(had, 5)) == {}
        assert crashes.terminate() == 0, "the folder is left to nobody"
        assert other.wait_until_it_has(PARTITIONS)
        changes = [event["event"] for event in other.events[seen:]]
        assert "revoking" not in changes
        assert "lost" not in changes
        assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["member.lock"]


def test_a_static_member_that_restarts_within_its_session_moves_nothing(
    tmp_path: Path, servers: str, group: str
) -> None:
    static = Sidecar(tmp_path, servers, group, [*EVENTS, STATIC, "--session-timeout-ms=30000"])
    others = [Sidecar(tmp_path, servers, group, name=name) for name in ("a", "b")]
    with running(static, *others):
        had = static.wait_until_it_has(2)
        for other in others:
            other.wait_until_it_has(2)
        settle(static, *others)
        seen = [len(other.events) for other in others]
        for end in (static.terminate, static.kill):
            end()
            static.start()
            assert static.wait_until_it_has(2) == had
        for other, before in zip(others, seen, strict=True):
            assert other.commit(dict.fromkeys(other.partitions, 1)) == {}, "still in the generation"
            assert [event["event"] for event in other.events[before:]] == ["committed"]
        static.send("stop", static=True)
        assert static.wait_for_exit() == 0
        for other in others:
            other.wait_until_it_has(3)


def test_two_processes_with_one_instance_id_do_not_fight(tmp_path: Path, servers: str, group: str) -> None:
    old, new = (Sidecar(tmp_path, servers, group, [*EVENTS, STATIC], name=name) for name in ("old", "new"))
    with running(old):
        old.wait_until_it_has(PARTITIONS)
        with running(new):
            new.wait_until_it_has(PARTITIONS)
            stopped = old.wait("stopped")
            assert stopped["failed"]
            assert "FENCED_INSTANCE_ID" in stopped["reason"]
            assert old.partitions == set()
            assert old.wait_for_exit() == 1
            assert new.commit({("events", 0): 1}) == {}


def test_a_coordinator_that_dies_is_found_again_and_nothing_moves(tmp_path: Path, group: str) -> None:
    coordinator = Coordinator(tmp_path, name="mortal")
    coordinator.start()
    coordinator.make_topic("events", PARTITIONS)
    address = coordinator.address
    sidecar = Sidecar(tmp_path, f"rota://{address}", group)
    with running(sidecar):
        sidecar.wait_until_it_has(PARTITIONS)
        coordinator.kill()
        assert address in sidecar.wait("problem")["sentence"]
        sidecar.wait("state", lambda event: event["state"] == "Rediscover")
        coordinator.start(f"--listen={address}")
        sidecar.wait("state", lambda event: event["state"] == "Stable")
        assert sidecar.commit({("events", 0): 1}) == {}
        assert sidecar.count("assigned") == 1
        assert sidecar.count("lost") == 0
        assert sidecar.terminate() == 0
    coordinator.stop()


def test_a_sidecar_that_was_frozen_for_longer_than_its_session_loses_all_and_comes_back(
    tmp_path: Path, servers: str, group: str
) -> None:
    frozen = Sidecar(tmp_path, servers, group, [*EVENTS, "--session-timeout-ms=1500"], name="frozen")
    other = Sidecar(tmp_path, servers, group, name="other")
    with running(frozen, other):
        had = frozen.wait_until_it_has(3)
        other.wait_until_it_has(3)
        settle(frozen, other)
        tenure = frozen.wait("assigned", lambda event: bool(event["partitions"]))["tenure"]
        frozen.signal(signal.SIGSTOP)
        other.wait_until_it_has(PARTITIONS)
        frozen.signal(signal.SIGCONT)
        assert flat(frozen.wait("lost")["partitions"]) == had
        frozen.wait_until_it_has(3)
        late = dict.fromkeys(had, 1)
        assert frozen.commit(late, tenure=tenure) == dict.fromkeys(had, "ILLEGAL_GENERATION")


def test_a_server_that_is_not_there_is_said_once_and_dialled_patiently(tmp_path: Path, group: str) -> None:
    sidecar = Sidecar(tmp_path, "rota://127.0.0.1:1", group)
    with running(sidecar):
        assert "127.0.0.1:1 cannot be reached" in sidecar.wait("problem")["sentence"]
        assert sidecar.terminate() == 0
        assert sidecar.wait("stopped")["reason"] == "SIGTERM"
        assert 1 <= sidecar.count("problem") <= 2, "once by who looks for the coordinator, once for topics"
        assert [event["state"] for event in sidecar.events if event["event"] == "state"] == [
            "Discover",
            "Stopped",
        ]


def test_an_error_that_only_an_operator_can_correct_ends_it_with_one_message(
    tmp_path: Path, coordinator: Coordinator, servers: str, group: str
) -> None:
    for flags, message in (
        (["--session-timeout-ms=400", "--heartbeat-interval-ms=100"], "INVALID_SESSION_TIMEOUT"),
        (["--tls"], f"{coordinator.address} has no TLS"),
        ([f"--token-file={tmp_path}/none"], f"the credentials file {tmp_path}/none cannot be read"),
    ):
        sidecar = Sidecar(tmp_path, servers, group, [*EVENTS, *flags])
        with running(sidecar):
            assert sidecar.wait_for_exit() == 1
        assert message in sidecar.wait("stopped")["reason"]
        assert message in sidecar.log.splitlines()[-1]
        assert "Traceback" not in sidecar.log


def test_denied_access_is_reported_in_one_message(tmp_path: Path, group: str) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    for file in (tokens, token):
        file.touch(mode=0o600)
    tokens.write_text("stranger plain:canary-of-a-stranger others.*\n")
    with serving(tmp_path, [*QUICK, f"--tokens-file={tokens}"]) as guarded:
        for shown, message in (
            ("canary-of-nobody", f"{guarded.address} cannot authenticate this client"),
            ("canary-of-a-stranger", "GROUP_AUTHORIZATION_FAILED: grant this client access to the group"),
        ):
            token.write_text(shown)
            flags = [*EVENTS, f"--token-file={token}"]
            sidecar = Sidecar(tmp_path, f"rota://{guarded.address}", group, flags)
            with running(sidecar):
                assert sidecar.wait_for_exit() == 1
            stopped = sidecar.wait("stopped")
            assert stopped["failed"]
            assert message in stopped["reason"]
            assert "canary" not in sidecar.log


def test_it_ends_in_time_though_nobody_answers(tmp_path: Path, group: str) -> None:
    with serving(tmp_path) as coordinator:
        coordinator.make_topic("events", PARTITIONS)
        sidecar = Sidecar(tmp_path, f"rota://{coordinator.address}", group)
        with running(sidecar):
            sidecar.wait_until_it_has(PARTITIONS)
            coordinator.signal(signal.SIGSTOP)
            # Two seconds are for the goodbye; a call that waits would take 30.
            assert sidecar.terminate(within_s=20) == 0
            coordinator.signal(signal.SIGCONT)
        assert sidecar.wait("stopped")["reason"] == "SIGTERM"


def test_a_strategy_that_never_returns_does_not_keep_the_process(
    tmp_path: Path, servers: str, group: str
) -> None:
    installed = tmp_path / "installed"
    described = installed / "endless-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: endless\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[rota.assignors]\nendless = endless:Endless\n")
    (installed / "endless.py").write_text(ENDLESS)
    flags = [*EVENTS, "--assignors=endless"]
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    sidecar = Sidecar(tmp_path, servers, group, flags, environment={"PYTHONPATH": path})
    with running(sidecar):
        sidecar.wait("state", lambda event: event["state"] == "Syncing")
        assert sidecar.terminate() == 0
        assert sidecar.wait("stopped")["reason"] == "SIGTERM"


def test_a_sidecar_whose_events_nobody_reads_any_more_leaves(
    tmp_path: Path, servers: str, group: str
) -> None:
    flags = [f"--bootstrap-servers={servers}", f"--group-id={group}", *EVENTS]
    other = Sidecar(tmp_path, servers, group)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.json_member", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPO,
    ) as unread:
        try:
            assert unread.stdout is not None
            assert json.loads(unread.stdout.readline())["state"] == "Discover"
            unread.stdout.close()
            # What it is to tell now, it cannot.
            with running(other):
                assert unread.wait(15) == 0
                assert unread.stderr is not None
                assert b"nobody reads the events any more" in unread.stderr.read()
                other.wait_until_it_has(PARTITIONS)
        finally:
            unread.kill()


def test_two_sidecars_do_not_share_a_state_folder(tmp_path: Path, servers: str, group: str) -> None:
    flags = [*EVENTS, f"--state-folder={tmp_path}/state"]
    first, second = (Sidecar(tmp_path, servers, group, flags, name=name) for name in ("first", "second"))
    with running(first):
        first.wait_until_it_has(PARTITIONS)
        with running(second):
            assert second.wait_for_exit() == 1
        assert second.log.startswith("json-member: --state-folder")
        assert second.log.endswith("each sidecar needs its own folder\n")


def test_what_was_remembered_of_another_group_is_put_aside(tmp_path: Path, servers: str, group: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "member.json").write_text("{}")
    sidecar = Sidecar(tmp_path, servers, group, [*EVENTS, f"--state-folder={folder}"])
    with running(sidecar):
        assert "joins as a new member" in sidecar.wait("problem")["sentence"]
        sidecar.wait_until_it_has(PARTITIONS)
        assert sidecar.terminate() == 0


def test_a_topic_that_does_not_exist_is_said_and_waited_for(
    tmp_path: Path, coordinator: Coordinator, servers: str, group: str
) -> None:
    sidecar = Sidecar(tmp_path, servers, group, [f"--topics={group}"])
    with running(sidecar):
        assert f"subscribes to topics that do not exist: {group}" in sidecar.wait("problem")["sentence"]
        coordinator.make_topic(group, 2)
        sidecar.wait_until_it_has(2)
