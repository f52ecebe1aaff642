"""`rota groups watch` and `explain` on Rota: with members that come and go."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.cli.groups import fill, two_members
from tests.support.processes import Process

pytestmark = pytest.mark.process

WITHIN_S = 40


def test_a_watch_tells_who_comes_and_what_moves_until_ctrl_c(rota: Rota, name: str, tmp_path: Path) -> None:
    fill(rota.servers, name, 0, 0, 0)
    log = tmp_path / "watched"
    command = [sys.executable, "-m", "rota_cli", "groups", "watch", name, "-o", "json"]
    watching = Process.start("rota groups watch", command, log=log, env=rota.environment())
    try:
        watching.wait_until(lambda: "group does not exist" in log.read_text(), within_s=WITHIN_S)
        with two_members(tmp_path, rota.servers, name, name):
            watching.wait_until(lambda: "→ second" in log.read_text(), within_s=WITHIN_S)
        watching.wait_until(lambda: "second left" in log.read_text(), within_s=WITHIN_S)
    finally:
        watching.stop(first=signal.SIGINT)
    assert watching.exit_code == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert "second joined" in {change for each in rows for change in each["changes"]}
    # A cooperative group is stable once in between, while a partition changes hands.
    given_out = [
        sorted(number for member in each["members"] for number in member["assigned"].get(name, []))
        for each in rows
        if each["state"] == "Stable" and len(each["members"]) == 2
    ]
    assert [0, 1, 2] in given_out
    assert [each["at"] for each in rows] == sorted(each["at"] for each in rows)


def test_an_explanation_tells_who_has_what_and_what_nobody_tells(
    rota: Rota, name: str, tmp_path: Path
) -> None:
    fill(rota.servers, name, 0, 0, 0)
    with two_members(tmp_path, rota.servers, name, name) as (first, second):
        found = rota("groups", "explain", name, "-o", "json").data
        lines = rota("groups", "explain", name).lines
        shares = [sorted(number for _, number in sidecar.partitions) for sidecar in (first, second)]
    assert lines[0].startswith("state:       stable in generation")
    assert "2 members share 3 partitions, assigned by cooperative-sticky" in lines[0]
    says = [each["says"] for each in found if each["about"] == "assignment"]
    for share in shares:
        shown = "[0-1]" if share == [0, 1] else "[1-2]" if share == [1, 2] else str(share).replace(" ", "")
        assert any(f" owns {name}{shown}" in message for message in says), (share, says)
    (why,) = [each for each in found if "the last rebalance was triggered by" in each["says"]]
    assert why["known"]
    # Who was first to have all its partitions, and so what came last, is a matter of time.
    assert re.search(r"member \S+ (re)?joined", why["says"])
    assert rota("groups", "explain", "nobody").code == 4


def test_a_watch_ends_with_code_3_when_its_coordinator_is_gone(tmp_path: Path) -> None:
    rota = Rota("rota://127.0.0.1:1", tmp_path)
    assert rota("groups", "watch", "any").code == 3
