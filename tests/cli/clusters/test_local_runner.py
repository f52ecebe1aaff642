"""The command line asks `rota up` for what only its members can do, and says in a sentence why that is not done."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from rota.records import TopicPartition
from rota_cli.clusters.connection import Connection
from rota_cli.clusters.local_runner import LocalRunner, find_local_runner
from rota_cli.clusters.model import CheckStatus
from rota_cli.commands.doctor import _fleet
from rota_cli.commands.explain import _reported
from rota_cli.errors import Failure

pytestmark = pytest.mark.process

HERE = "rota://127.0.0.1:7070"
OFFSETS = {TopicPartition("orders", 1): 3, TopicPartition("orders", 0): 0}


class Runner(http.server.BaseHTTPRequestHandler):
    """Stands for the page of `rota up`."""

    status = 200
    answer = b'{"message": "done"}'
    asked: list[tuple[str, str | None, object]]

    def do_GET(self) -> None:
        """Answer as it is told to."""
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.answer)

    def do_POST(self) -> None:
        """Answer as it is told to."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.answer)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Runner, "asked", [], raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), Runner) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_all_offsets_are_asked_for_at_once(page: str) -> None:
    LocalRunner(page).reset("shop", OFFSETS)
    body = {"group": "shop", "offsets": {"orders": {"1": 3, "0": 0}}}
    assert Runner.asked == [("/api/reset", "application/json", body)]


def test_replicas_of_a_group_are_those_of_its_workloads(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workloads = [
        {"group_id": group, "replicas": [{"name": f"{name}-0"}, {"name": f"{name}-1"}]}
        for group, name in (("shop", "one"), ("shop", "two"), ("other", "three"), (None, "four"))
    ]
    monkeypatch.setattr(Runner, "answer", json.dumps({"workloads": workloads}).encode())
    assert LocalRunner(page).replicas("shop") == {"one-0", "one-1", "two-0", "two-1"}
    assert LocalRunner(page).replicas("nobodys") == frozenset()
    for answer in (b"<html>", b"[]", b"{}", b'{"workloads": [1]}'):
        monkeypatch.setattr(Runner, "answer", answer)
        with pytest.raises(Failure, match="`rota up` does not answer at http"):
            LocalRunner(page).replicas("shop")


def test_what_keeps_members_from_reading_is_known_by_group(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [
        {"name": "one-0", "problems": ["orders-0: seek", "no topic"]},
        {"name": "one-1", "problems": []},
    ]
    groups = [{"group_id": "shop", "members": members}, {"group_id": "other", "members": []}]
    monkeypatch.setattr(Runner, "answer", json.dumps({"groups": groups}).encode())
    assert LocalRunner(page).problems(5) == {
        "shop": ["one-0 reports: orders-0: seek", "one-0 reports: no topic"],
        "other": [],
    }
    monkeypatch.setattr(Runner, "answer", b"{}")
    with pytest.raises(Failure, match="`rota up` does not answer at http"):
        LocalRunner(page).problems(5)


DECISION = {
    "at_ms": 5_000, "before": 2, "replicas": 4, "reason": "LoadAboveTarget",
    "explanation": "40.0 records/s arrive", "dry_run": True, "inputs": {},
}  # fmt: skip


def test_doctor_and_explain_name_what_the_sidecars_of_rota_up_report(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    members = [{"name": "one-0", "problems": ["dead-letter topic dlq does not exist: create it"]}]
    groups = [{"group_id": "shop", "members": members}]
    workloads = [{"group_id": group, "name": "app", "decisions": [DECISION]} for group in ("shop", None)]
    monkeypatch.setattr(Runner, "answer", json.dumps({"groups": groups, "workloads": workloads}).encode())
    assert list(_fleet(Connection(HERE, ""))) == []
    (tmp_path / ".rota").mkdir()
    (tmp_path / ".rota/address").write_text(f"{HERE}\n")
    (tmp_path / ".rota/page").write_text(f"{page}\n")
    (check,) = _fleet(Connection(HERE, ""))
    remark, scaling = _reported(Connection(HERE, ""), "shop")
    assert scaling.about == "scaling"
    assert (
        scaling.message == "00:00:05Z app (dry run): 2 to 4 replicas, LoadAboveTarget: 40.0 records/s arrive"
    )
    assert remark.message == "one-0 reports: dead-letter topic dlq does not exist: create it"
    assert _reported(Connection(HERE, ""), "other") == []
    assert check.status is CheckStatus.WARNING
    assert check.message == "group shop: one-0 reports: dead-letter topic dlq does not exist: create it"
    monkeypatch.setattr(Runner, "answer", b"{}")
    (check,) = _fleet(Connection(HERE, ""))
    assert "`rota up` does not answer at" in check.message
    (remark,) = _reported(Connection(HERE, ""), "shop")
    assert not remark.known


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            b'{"error": "group shop is being reset: wait for the end of that"}',
            "group shop is being reset: wait",
        ),
        (b"<html>", "`rota up` rejected the reset without a reason"),
        (b"[]", "`rota up` rejected the reset without a reason"),
    ],
)
def test_why_it_is_refused_is_said(
    page: str, monkeypatch: pytest.MonkeyPatch, answer: bytes, message: str
) -> None:
    monkeypatch.setattr(Runner, "status", 409)
    monkeypatch.setattr(Runner, "answer", answer)
    with pytest.raises(Failure, match=message):
        LocalRunner(page).reset("shop", OFFSETS)


def test_that_nobody_answers_is_said(page: str) -> None:
    with pytest.raises(Failure, match=r"`rota up` does not answer at http://127\.0\.0\.1:1 "):
        LocalRunner("http://127.0.0.1:1").reset("shop", OFFSETS)
    with pytest.raises(Failure, match=r"`rota up` does not answer at http://127\.0\.0\.1:1 "):
        LocalRunner("http://127.0.0.1:1").replicas("shop")


def test_it_is_whoever_runs_in_this_folder_with_these_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_local_runner(Connection(HERE, "")) is None
    home = tmp_path / ".rota"
    home.mkdir()
    (home / "address").write_text(f"{HERE}\n")
    # It has not said yet where its page is, or has none any more.
    assert find_local_runner(Connection(HERE, "")) is None
    (home / "page").write_text("http://127.0.0.1:7072\n")
    assert find_local_runner(Connection(HERE, "")) == LocalRunner("http://127.0.0.1:7072")
    assert find_local_runner(Connection("rota://elsewhere:7070", "")) is None
