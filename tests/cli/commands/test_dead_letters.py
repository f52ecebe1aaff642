"""`rota dead-letters` on Rota's own log."""

from pathlib import Path

import pytest

from rota import Producer
from tests.cli.command import Rota
from tests.cli.dead_letters import (
    check_fencing,
    check_kills,
    check_list,
    check_open_transaction,
    check_replay,
    check_skipped,
)

pytestmark = pytest.mark.process


def test_dead_letters_are_listed_with_origin_and_reason(rota: Rota, name: str, tmp_path: Path) -> None:
    check_list(rota, name, tmp_path)


def test_what_is_not_a_dead_letter_is_listed_with_the_reason(rota: Rota, name: str) -> None:
    rota("topics", "create", name)
    with Producer(rota.servers) as producer:
        producer.send(name, b"x", headers=[("rota-dlq-topic", b"\x1b[31m")]).result(10)
    (row,) = rota("dead-letters", "list", name, "-o", "json").data
    assert (row["state"], row["origin_topic"], row["reason"]) == ("skipped", None, None)
    assert row["remark"] == "not a dead letter of Rota: the header rota-dlq-partition is missing"


def test_texts_of_headers_neither_move_the_cursor_nor_end_the_line(rota: Rota, name: str) -> None:
    rota("topics", "create", name)
    headers = {
        "topic": "a\nb",
        "partition": 0,
        "offset": 1,
        "group": "\x1b[31m",
        "reason": "c\td",
        "deliveries": 2,
    }
    with Producer(rota.servers) as producer:
        sent = [(f"rota-dlq-{each}", str(value).encode()) for each, value in headers.items()]
        producer.send(name, b"x", headers=sent).result(10)
    _, line = rota("dead-letters", "list", name).lines
    assert "a\\nb[0] at 1   \\x1b[31m" in line
    assert line.endswith("skipped   c\\td     its topic a\\nb does not exist")


def test_each_dead_letter_is_replayed_once_as_it_was(rota: Rota, name: str, tmp_path: Path) -> None:
    check_replay(rota, name, tmp_path)


def test_each_dead_letter_is_replayed_once_though_replays_are_killed_and_meet(
    rota: Rota, name: str, tmp_path: Path
) -> None:
    check_kills(rota, name, tmp_path)


def test_a_replay_fences_the_one_before_it(rota: Rota, name: str) -> None:
    check_fencing(rota, name)


def test_nothing_is_replayed_behind_an_open_transaction(rota: Rota, name: str) -> None:
    check_open_transaction(rota, name)


def test_what_cannot_be_replayed_is_skipped_by_name(rota: Rota, name: str) -> None:
    check_skipped(rota, name)
