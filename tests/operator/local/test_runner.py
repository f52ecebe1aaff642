"""A folder of manifests runs on a laptop: members share the partitions, and nothing is left or lost when it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rota_operator.manifests.resources import API_VERSIONS
from tests.cli.command import Rota
from tests.operator.local.laptop import APP, CARELESS_APP, RECORDS, WITHIN_S, Laptop
from tests.support.processes import wait_for
from tests.support.sidecar import Sidecar, running
from tests.support.web import post

pytestmark = pytest.mark.process


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path)


def test_when_the_page_is_announced_the_coordinator_can_be_asked(laptop: Laptop) -> None:
    process = laptop.start()
    process.wait_until(lambda: "web page: http://" in process.log.read_text(), within_s=WITHIN_S)
    host, _, port = laptop.address.removeprefix("rota://").rpartition(":")
    socket.create_connection((host, int(port)), timeout=WITHIN_S).close()
    process.stop()
    assert process.exit_code == 0


def test_members_share_what_there_is_and_nothing_stays_behind(laptop: Laptop) -> None:
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    process.stop()
    assert process.exit_code == 0
    assert laptop.processes() == {}
    done = [record for _, record in laptop.done]
    assert len(done) == len(set(done)) == RECORDS
    # Three members are in the group before the first one has all.
    assert {who for who, _ in laptop.done} <= {"orders-0", "orders-1", "orders-2"}


def test_who_ends_finishes_first_so_that_nothing_comes_again(tmp_path: Path) -> None:
    """The application heeds no signal: without asking its sidecar first what it has in hand would be repeated."""
    laptop = Laptop(tmp_path, CARELESS_APP)
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until(lambda: len(laptop.done) >= RECORDS // 3, within_s=WITHIN_S)
    assert len(laptop.done) < RECORDS, "nobody has anything in hand any more"
    process.stop()
    (laptop.home / "address").unlink()
    again = laptop.start()
    again.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    again.stop()
    assert len(laptop.done) == RECORDS
    assert "without a complete drain" not in process.log.read_text() + again.log.read_text()


def test_asked_twice_it_waits_for_nobody(tmp_path: Path) -> None:
    """The application would need minutes for what it has in hand."""
    laptop = Laptop(tmp_path, CARELESS_APP)
    process = laptop.start()
    laptop.fill(process, RECORDS * 50)
    process.wait_until(lambda: len(laptop.done) > 0, within_s=WITHIN_S)
    os.kill(process.pid, signal.SIGINT)
    logs = [laptop.home / "logs" / f"orders-{number}.sidecar.log" for number in range(3)]
    process.wait_until(
        lambda: any("draining, dispatch has stopped" in log.read_text() for log in logs), within_s=WITHIN_S
    )
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(within_s=WITHIN_S) == 0
    assert "stopping without a complete drain: shutdown was forced" in process.log.read_text()
    assert laptop.processes() == {}


def test_a_killed_runner_leaves_no_process_and_the_next_one_goes_on(laptop: Laptop) -> None:
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    # What is done and not committed may come again.
    process.wait_until(lambda: laptop.group()["lag_records"] == 0, within_s=WITHIN_S)
    process.kill()
    wait_for("the end of all processes", lambda: not laptop.processes(), within_s=WITHIN_S)
    (laptop.home / "address").unlink()
    again = laptop.start()
    again.wait_until((laptop.home / "address").exists, within_s=WITHIN_S)
    laptop.send(6)
    again.wait_until(lambda: laptop.all_are_done(RECORDS + 6), within_s=WITHIN_S)
    again.stop()
    assert again.exit_code == 0
    assert len(laptop.done) == RECORDS + 6


def test_a_member_that_dies_comes_again(laptop: Laptop) -> None:
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    app = next(
        pid
        for pid, command in laptop.processes().items()
        if str(APP) in command and "supervisor" not in command
    )
    Path(f"/proc/{app}").stat()
    subprocess.run(["kill", "-9", str(app)], check=True)
    process.wait_until(lambda: "app exited with code 137" in process.log.read_text(), within_s=WITHIN_S)
    laptop.send(6)
    process.wait_until(lambda: laptop.all_are_done(RECORDS + 6), within_s=WITHIN_S)
    process.stop()
    assert process.exit_code == 0


def test_a_static_member_keeps_what_it_has_over_a_crash_and_leaves_when_it_goes_for_good(
    laptop: Laptop,
) -> None:
    file = laptop.folder / "orders.yaml"
    # A session that nobody waits for here.
    file.write_text(
        file.read_text().replace("sessionTimeoutSeconds: 6", "sessionTimeoutSeconds: 600, static: true")
    )
    process = laptop.start()
    laptop.fill(process, RECORDS)
    three = {f"orders-{number}": 2 for number in range(3)}
    process.wait_until(lambda: laptop.owners() == three, within_s=WITHIN_S)
    before = laptop.group()
    victim = next(each for each in before["members"] if each["name"] == "orders-1")
    laptop.kill("orders-1")
    process.wait_until(lambda: "orders-1: sidecar exited" in process.log.read_text(), within_s=WITHIN_S)
    process.wait_until(lambda: laptop.owners() == three, within_s=WITHIN_S)
    after = laptop.group()
    back = next(each for each in after["members"] if each["name"] == "orders-1")
    assert after["generation"] == before["generation"]
    assert back["partitions"] == victim["partitions"]
    laptop.scale(2)
    process.wait_until(lambda: laptop.owners() == {"orders-0": 3, "orders-1": 3}, within_s=WITHIN_S)
    process.stop()
    assert process.exit_code == 0


def test_a_group_is_reset_while_its_members_stay(laptop: Laptop) -> None:
    process = laptop.start()
    laptop.fill(process, RECORDS)
    three = {f"orders-{number}": 2 for number in range(3)}
    process.wait_until(lambda: laptop.owners() == three, within_s=WITHIN_S)
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    generation = laptop.group()["generation"]
    # Of each partition the last four come again.
    offsets = {str(number): RECORDS // 6 - 4 for number in range(6)}
    answer = post(laptop.page, "/api/reset", {"group": "shop.orders", "offsets": {"orders": offsets}})
    assert (answer.status, json.loads(answer.page)) == (200, {"message": "done"})
    process.wait_until(lambda: len(laptop.done) == RECORDS + 6 * 4, within_s=WITHIN_S)
    process.wait_until(lambda: laptop.group()["lag_records"] == 0, within_s=WITHIN_S)
    group = laptop.group()
    assert group["generation"] == generation
    (done,) = (event["message"] for event in group["history"] if ": done, " in event["message"])
    assert ": done, 6 partitions, 0 records skipped, 24 repeated; " in done
    assert not any(each["suspended"] for each in group["members"])
    process.stop()
    assert process.exit_code == 0


def test_a_reset_of_the_manifest_is_executed_by_the_next_runner_and_once(laptop: Laptop) -> None:
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    process.wait_until(lambda: laptop.group()["lag_records"] == 0, within_s=WITHIN_S)
    process.stop()
    file = laptop.folder / "orders.yaml"
    mode = "offsets: {commit: {mode: sync}"
    reset = ", reset: {requestId: replay-1, dryRun: false, to: {offset: 6}}"
    file.write_text(file.read_text().replace(mode, f"{mode}{reset}"))
    (laptop.home / "address").unlink()
    again = laptop.start()
    again.wait_until(lambda: "reset replay-1: done, 6 partitions" in again.log.read_text(), within_s=WITHIN_S)
    # Of each partition the last four come again.
    again.wait_until(lambda: len(laptop.done) == RECORDS + 6 * 4, within_s=WITHIN_S)
    again.wait_until(lambda: laptop.group()["lag_records"] == 0, within_s=WITHIN_S)
    # Killed: the record alone says that it was executed.
    again.kill()
    wait_for("the end of all processes", lambda: not laptop.processes(), within_s=WITHIN_S)
    (laptop.home / "address").unlink()
    last = laptop.start()
    laptop.send_when_ready(last, 6)
    last.wait_until(lambda: laptop.all_are_done(RECORDS + 6), within_s=WITHIN_S)
    assert not any(each["suspended"] for each in laptop.group()["members"])
    last.stop()
    assert len(laptop.done) == RECORDS + 6 * 4 + 6
    record = json.loads((laptop.home / "resets" / "shop.orders" / "record.json").read_text())
    assert [each["requestId"] for each in record["executed"]] == ["replay-1"]


def test_a_reset_is_refused_before_it_touches_anything_when_other_clients_are_members(laptop: Laptop) -> None:
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    process.wait_until(lambda: laptop.group()["lag_records"] == 0, within_s=WITHIN_S)
    stranger = Sidecar(
        laptop.folder,
        laptop.address,
        "shop.orders",
        ["--topics=orders", "--client-id=stranger"],
    )
    rota = Rota(laptop.address, laptop.folder)
    reset = ("groups", "reset", "shop.orders", "--to-earliest")
    with running(stranger):
        stranger.wait_until_it_has(1)
        wait_for("the other shares", lambda: sum(laptop.owners().values()) == 5, within_s=WITHIN_S)
        done, dry = rota(*reset, "--execute"), rota(*reset, "--dry-run")
        group = laptop.group()
    assert done.code == 1
    assert done.error == (
        "group shop.orders has members that `rota up` does not run here (client id stranger): stop them, then retry the reset"
    )
    assert dry.stderr == f"dry run, nothing changed; --execute would be rejected: {done.error}\n"
    assert not any(each["suspended"] for each in group["members"])
    assert not any(event["kind"] == "reset" for event in group["history"])
    process.stop()
    assert process.exit_code == 0
    assert len(laptop.done) == RECORDS


def test_who_looks_sees_members_partitions_and_lag_and_may_scale(laptop: Laptop) -> None:
    process = laptop.start()
    laptop.fill(process, RECORDS)
    three = {f"orders-{number}": 2 for number in range(3)}
    process.wait_until(lambda: laptop.owners() == three, within_s=WITHIN_S)
    # A report from before the records says that there is no lag.
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    process.wait_until(lambda: laptop.group()["lag_records"] == 0, within_s=WITHIN_S)
    laptop.scale(2)
    process.wait_until(lambda: laptop.owners() == {"orders-0": 3, "orders-1": 3}, within_s=WITHIN_S)
    process.wait_until(lambda: "orders-2: stopped" in process.log.read_text(), within_s=WITHIN_S)
    # Reports of the sidecars and the coordinator's description come on streams of their own, in any order.
    process.wait_until(lambda: has_settled(laptop.group()), within_s=WITHIN_S)
    group = laptop.group()
    assert [each["name"] for each in group["members"]] == ["orders-0", "orders-1"]
    assert [each["end"] for each in group["partitions"]] == [RECORDS // 6] * 6
    said = [event["message"] for event in reversed(group["history"])]
    assert said.index("orders scaled from 3 to 2 replicas") < said.index("orders-2: stopped")
    assert all(event["pause_ms"] is not None for event in rebalances(group))
    assert any("orders-2 left" in event["message"] for event in rebalances(group))
    process.stop()
    assert process.exit_code == 0
    assert len(laptop.done) == RECORDS


def rebalances(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [event for event in group["history"] if event["kind"] == "rebalance"]


def has_settled(group: Mapping[str, Any]) -> bool:
    """Return True once the last rebalance is over, and shown as over, and every partition's end offset is known."""
    return (
        group["state"] == "Stable"
        and {each["state"] for each in group["members"]} == {"Stable"}
        and all(each["end"] is not None for each in group["partitions"])
        and all(event["pause_ms"] is not None for event in rebalances(group))
    )


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rota_operator", "local", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)


def test_wrong_manifests_are_said_and_nothing_is_started(laptop: Laptop) -> None:
    file = laptop.folder / "orders.yaml"
    file.write_text(
        file.read_text().replace("replicas: 3", "replicas: three").replace("kind: Depl", "kind: Dipl")
    )
    done = run("-f", str(laptop.folder), f"--home={laptop.home}")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{file}:7: spec.replicas must be an integer",
        f'{file}:13: unsupported kind "Diployment"; expected one of {", ".join(API_VERSIONS)}',
    ]
    assert not laptop.home.exists()


def test_what_is_not_supported_yet_is_refused(laptop: Laptop) -> None:
    file = laptop.folder / "orders.yaml"
    file.write_text(
        file.read_text().replace(
            "  replicas: 3\n", "  replicas: 3\n  monitoring: {alerts: {lagSeconds: 7}}\n"
        )
    )
    done = run("-f", str(file), f"--home={laptop.home}")
    assert done.returncode == 1
    assert done.stderr == f"{file}:8: spec.monitoring.alerts.lagSeconds is not supported yet; remove it\n"


def test_who_asks_for_rotas_coordinator_has_no_brokers_stand_for_it(laptop: Laptop) -> None:
    file = laptop.folder / "orders.yaml"
    file.write_text(file.read_text().replace("  replicas: 3\n", "  replicas: 3\n  coordination: Rota\n"))
    done = run("-f", str(file), f"--home={laptop.home}", "--kafka=127.0.0.1:9092")
    assert done.returncode == 1
    assert done.stderr == (
        f"{file}:8: spec.coordination must not be Rota with --kafka, which replaces Rota's servers by Kafka brokers; "
        "omit one of them\n"
    )


BORROWING = """\
apiVersion: rota.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: borrowing}
spec:
  bootstrapServers: ["kafka-0:9092"]
  coordination: Rota
  coordinatorAddress: rota://rota-coordinator.rota:7070
  topics: [orders]
  scaleTargetRef: {name: borrowing}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: borrowing}
spec:
  selector: {matchLabels: {app: borrowing}}
  template:
    metadata: {labels: {app: borrowing}}
    spec:
      containers: [{name: app, image: "borrowing:1", command: [python]}]
"""


def test_one_coordinator_has_either_the_records_or_only_the_offsets(laptop: Laptop) -> None:
    file = laptop.folder / "borrowing.yaml"
    file.write_text(BORROWING)
    done = run("-f", str(laptop.folder), f"--home={laptop.home}")
    assert done.returncode == 1
    assert done.stderr == (
        f"{file}:6: spec.coordination must not be Rota over topics in Kafka while shop/orders has its topics in Rota: "
        "one coordinator supports only one of the two; run them separately, each with its own --home\n"
    )


@pytest.mark.parametrize("brokers", ["localhost", "a:1,", "rota://a:1", "a:1 b:2"])
def test_what_is_no_address_of_brokers_is_refused(laptop: Laptop, brokers: str) -> None:
    done = run("-f", str(laptop.folder), f"--home={laptop.home}", f"--kafka={brokers}")
    assert done.returncode == 1
    assert done.stderr == (f"invalid --kafka {brokers}; expected HOST:PORT, comma-separated\n")


def test_the_demo_is_on_rotas_own_log() -> None:
    done = run("--kafka=127.0.0.1:9092")
    assert done.returncode == 2
    assert done.stderr.endswith("--kafka requires -f: the demo runs on Rota's own log\n")


def test_a_home_has_one_runner(laptop: Laptop) -> None:
    process = laptop.start()
    process.wait_until((laptop.home / "address").exists, within_s=WITHIN_S)
    done = run("-f", str(laptop.folder), f"--home={laptop.home}")
    assert done.returncode == 1
    assert done.stderr == f"another runner uses {laptop.home}; stop it, or choose another --home\n"
    process.stop()


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = run("-f", str(tmp_path / "none.yaml"))
    assert done.returncode == 1
    assert done.stderr.endswith("; check that it exists and is readable\n")
