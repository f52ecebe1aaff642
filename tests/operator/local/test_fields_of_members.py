"""
Effects of the fields about membership on running groups: as `test_fields`, for groups that are frozen, scaled and
delayed.
"""

import json
import os
import re
import signal
from collections.abc import Iterator

import pytest

import rota
from rota_proto.coordinator.v1 import admin_pb2
from tests.cli.groups import fill
from tests.operator.local.groups import Groups
from tests.support.processes import wait_for
from tests.support.web import get

pytestmark = pytest.mark.process

BEATS = re.compile(r'^rota_heartbeats_total{group="[^"]*",outcome="ok"} (\d+)', re.MULTILINE)

LAGS_OF_TOPIC = 'rota_lag_records{group="default.sparing",topic="many"}'


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    groups = Groups(tmp_path_factory.mktemp("members"))
    groups.add("silent", {"topics": ["any"]}, "poll")
    calm = {"sessionTimeoutSeconds": 60, "heartbeatIntervalSeconds": 20}
    groups.add("calm", {"topics": ["any"], "membership": calm}, "poll")
    held = {"sessionTimeoutSeconds": 6, "heartbeatIntervalSeconds": 1, "rebalanceTimeoutSeconds": 3}
    drained = {"terminationDrainSeconds": 2}
    spec = {"topics": ["held"], "membership": held, "sidecar": drained}
    groups.add("held", spec, "poll", kind="StatefulSet")
    sparing = {"strategy": "load-aware-sticky", "maxMovedPartitionsPercent": 25}
    groups.add(
        "sparing", {"topics": ["many"], "assignment": sparing, "monitoring": {"granularity": "topic"}}, "poll"
    )
    with groups.running(groups.manifests) as groups.process:
        fill(groups.address, "any", 1)
        fill(groups.address, "held", 0, 0)
        fill(groups.address, "many", *[0] * 8)
        yield groups


def heartbeats(groups: Groups, replica: str) -> int:
    """As its sidecar has counted them."""
    found = BEATS.search(metrics(groups, replica))
    return 0 if found is None else int(found.group(1))


def metrics(groups: Groups, replica: str) -> str:
    """The page of a replica's sidecar; empty until it serves one."""
    # Its last line may not be complete.
    complete, _, _ = groups.log(replica).rpartition("\n")
    events = map(json.loads, complete.splitlines())
    served = [each["message"].removeprefix("http on ") for each in events if each["event"] == "http"]
    return get(served[-1], "/metrics").page if served else ""


def test_metrics_are_exported_at_the_level_of_the_spec(groups: Groups) -> None:
    groups.until("its topic", lambda: LAGS_OF_TOPIC in metrics(groups, "sparing-0"))
    assert "partition=" not in metrics(groups, "sparing-0")
    groups.until("its partitions", lambda: "partition=" in metrics(groups, "calm-0"))


def test_who_is_silent_for_a_session_is_out(groups: Groups) -> None:
    groups.until("its member", lambda: "assigned any-0" in groups.log("silent-0"))
    pid = int(groups.pid_file("silent-0").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        # Long before the session that a group has when it says nothing, of 45 s.
        gone = lambda: not groups.described("default.silent").members
        wait_for("the member is out", gone, within_s=30)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_members_say_that_they_live_as_often_as_they_are_to(groups: Groups) -> None:
    for name in ("sparing", "calm"):
        groups.until("its member", lambda name=name: "assigned " in groups.log(f"{name}-0"))
    groups.until("heartbeats", lambda: heartbeats(groups, "sparing-0") >= 5)
    assert heartbeats(groups, "calm-0") < heartbeats(groups, "sparing-0")


def test_no_more_moves_at_once_than_is_to(groups: Groups) -> None:
    groups.until("all of them", lambda: "many-7" in groups.log("sparing-0"))
    groups.scale("sparing", 2)
    groups.until("its share", lambda: "assigned " in groups.log("sparing-1"))
    gave = [line for line in groups.log("sparing-0").splitlines() if "revoked " in line]
    # Four would have gone in one go.
    assert gave
    assert all(line.count("many-") <= 2 for line in gave)


def test_who_holds_on_to_a_record_lets_go_in_the_end(groups: Groups) -> None:
    """After the time for a rebalance; its group would wait for five minutes, or else until the application is hung."""
    groups.until("all of them", lambda: "held-1" in groups.log("held-0"))
    with rota.Producer(groups.address) as producer:
        for partition in range(2):
            producer.send("held", b"hang", partition=partition)
    groups.until("the record", lambda: "hang" in groups.values("held"))
    groups.scale("held", 2)
    groups.until("its share", lambda: "assigned held-" in groups.log("held-1"))
    stable = admin_pb2.GROUP_STATE_STABLE
    groups.until("their shares", lambda: groups.described("default.held").state == stable)

    groups.scale("held", 0)
    # What it has in hand is waited for as long as the group says, of which 45 s are the default.
    wait_for("the end", lambda: not groups.pid_file("held-0").exists(), within_s=30)
    assert "held-0: stopping without a complete drain" in (groups.folder / "local.log").read_text()
