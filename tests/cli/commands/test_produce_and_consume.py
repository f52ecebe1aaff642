"""`rota produce` and `rota consume` on Rota's own log."""

import json
import signal
import sys
from pathlib import Path

import pytest

from rota import LogReader, Producer
from tests.cli.command import Rota
from tests.support.processes import Process

pytestmark = pytest.mark.process

WITHIN_S = 40


@pytest.fixture
def topic(rota: Rota, name: str) -> str:
    """With two partitions."""
    assert rota("topics", "create", name, "-p", "2").code == 0
    return name


def test_each_line_is_a_record_and_comes_back_as_it_was(rota: Rota, topic: str) -> None:
    assert rota("produce", topic, "--partition", "1", stdin="one\n\nthree").lines == [
        f"wrote 3 records to {topic}"
    ]
    shown = rota("consume", topic, "--from-beginning", "-o", "json").lines
    records = [json.loads(line) for line in shown]
    assert [(each["partition"], each["offset"], each["key"], each["value"]) for each in records] == [
        (1, 0, None, "one"),
        (1, 1, None, ""),
        (1, 2, None, "three"),
    ]


def test_keys_go_where_every_client_puts_them(rota: Rota, topic: str) -> None:
    rota("produce", topic, "--key-separator", "=", stdin="a=1\nb=2\na=x=y\n")
    with Producer(rota.servers) as producer:
        partition = producer.send(topic, b"by the SDK", key=b"a").result(10).partition
    with LogReader(rota.servers) as reader:
        found = [(record.key, record.value) for batch in reader.read(topic, partition) for record in batch]
    assert [value for key, value in found if key == b"a"] == [b"1", b"x=y", b"by the SDK"]


def test_each_record_has_all_headers_in_their_order(rota: Rota, topic: str) -> None:
    flags = ("--header", "kind=a=b", "--header", "empty=", "--header", "kind=c")
    assert rota("produce", topic, *flags, stdin="one\ntwo\n").code == 0
    shown = rota("consume", topic, "--from-beginning", "-o", "json").lines
    expected = [
        {"name": "kind", "value": "a=b"},
        {"name": "empty", "value": ""},
        {"name": "kind", "value": "c"},
    ]
    assert [json.loads(line)["headers"] for line in shown] == [expected, expected]


@pytest.mark.parametrize("header", ["kind", "=value", ""])
def test_a_header_without_key_or_separator_is_refused_before_anything_is_written(
    rota: Rota, topic: str, header: str
) -> None:
    done = rota("produce", topic, "--header", header, stdin="one\n")
    assert (done.code, done.error) == (
        2,
        f"--header {header}: expected KEY=VALUE, such as content-type=text/plain",
    )
    assert rota("consume", topic, "--from-beginning", "--value-only").lines == []


def test_a_line_without_a_key_ends_it_and_says_how_much_was_written(rota: Rota, topic: str) -> None:
    done = rota("produce", topic, "--key-separator", "=", stdin="a=1\nb\nc=3\n")
    assert done.code == 1
    assert done.error == (
        "line 2 has no key separator '=': fix the line or omit --key-separator; 1 record written "
        f"to {topic} before"
    )
    assert len(rota("consume", topic, "--from-beginning", "--value-only").lines) == 1


def test_an_unknown_partition_is_refused_before_anything_is_read(rota: Rota, topic: str) -> None:
    assert rota("produce", "not-there", stdin="x\n").code == 4
    assert "has no partition 2 (it has 2)" in rota("produce", topic, "--partition", "2", stdin="x\n").error
    assert rota("consume", "not-there", "--from-beginning").code == 4


def test_what_people_see_neither_moves_the_cursor_nor_ends_the_line(rota: Rota, topic: str) -> None:
    with Producer(rota.servers) as producer:
        producer.send(topic, "café\x1b[31m\n".encode(), key=b"\xff", partition=0, timestamp_ms=0).result(10)
    heading, line = rota("consume", topic, "--from-beginning").lines
    assert heading.split() == ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE"]
    assert line.split() == ["0", "0", "1970-01-01T00:00:00.000Z", "\\xff", "café\\x1b[31m\\n"]


def test_what_is_no_text_is_base64_for_programs(rota: Rota, topic: str) -> None:
    with Producer(rota.servers) as producer:
        producer.send(topic, None, key=b"\xff", partition=0, headers=[("kind", b"x"), ("none", None)]).result(
            10
        )
    record = json.loads(rota("consume", topic, "--from-beginning", "-o", "json").stdout)
    assert (record["key"], record["value"]) == ({"base64": "/w=="}, None)
    assert record["headers"] == [{"name": "kind", "value": "x"}, {"name": "none", "value": None}]


def test_it_ends_at_the_end_or_after_so_many_records(rota: Rota, topic: str) -> None:
    rota("produce", topic, stdin="".join(f"{number}\n" for number in range(500)))
    assert len(rota("consume", topic, "--from-beginning", "--value-only").lines) == 500
    assert len(rota("consume", topic, "--from-beginning", "--value-only", "--max-records", "7").lines) == 7
    nothing = rota("consume", topic)
    assert (nothing.code, "add --from-beginning for existing records" in nothing.error) == (2, True)


def test_records_of_an_open_transaction_are_left_out_when_asked(rota: Rota, topic: str) -> None:
    with Producer(rota.servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result(10)
        all_of_them = rota("consume", topic, "--from-beginning", "--value-only")
        committed = rota("consume", topic, "--from-beginning", "--value-only", "--read-committed")
        producer.abort_transaction()
    assert all_of_them.lines == ["open"]
    assert committed.lines == []
    assert rota("consume", topic, "--from-beginning", "--value-only", "--read-committed").lines == []


def test_following_shows_what_comes_until_ctrl_c(rota: Rota, topic: str, tmp_path: Path) -> None:
    rota("produce", topic, stdin="before\n")
    command = [sys.executable, "-m", "rota_cli", "consume", topic, "--follow"]
    log = tmp_path / "followed"
    following = Process.start("rota consume", command, log=log, env=rota.environment())
    try:
        following.wait_until(lambda: "OFFSET" in log.read_text(), within_s=WITHIN_S)
        following.wait_until(
            lambda: rota("produce", topic, stdin="later\n").code == 0 and "later" in log.read_text(),
            within_s=WITHIN_S,
        )
    finally:
        following.stop(first=signal.SIGINT)
    assert following.exit_code == 0
    assert "before" not in log.read_text()
    assert "Traceback" not in log.read_text()
