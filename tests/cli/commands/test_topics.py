"""`rota topics` on Rota's own log."""

import json
from pathlib import Path

import pytest

from rota import LogReader, Producer
from tests.cli.command import Rota
from tests.support.ports import free_port

pytestmark = pytest.mark.process


def test_a_topic_is_made_listed_described_and_deleted(rota: Rota, name: str) -> None:
    made = rota(
        "topics", "create", name, "--partitions", "3", "--retention", "P7D", "--retention-bytes", "64MiB"
    )
    assert made.lines == [f"created topic {name} with 3 partitions"]

    listed = {each["topic"]: each for each in rota("topics", "list", "-o", "json").data}
    expected = {"topic": name, "partitions": 3, "retention_ms": 604_800_000, "retention_bytes": 67_108_864}
    assert listed[name] == expected | {"cleanup_policy": "delete", "delete_retention_ms": 86_400_000}

    with Producer(rota.servers) as producer:
        producer.send(name, b"x", partition=1).result(10)
    rows = [line.split() for line in rota("topics", "describe", name).lines]
    assert rows == [
        ["TOPIC", "PARTITION", "START", "END", "RECORDS"],
        [name, "0", "0", "0", "0"],
        [name, "1", "0", "1", "1"],
        [name, "2", "0", "0", "0"],
    ]

    assert rota("topics", "delete", name, "--yes").lines == [f"deleted {name}"]
    assert rota("topics", "describe", name).code == 4


def test_a_list_is_for_people_or_for_programs(rota: Rota, name: str) -> None:
    rota("topics", "create", name, "--retention", "36h")
    table = [line.split() for line in rota("topics", "list").lines]
    assert table[0] == ["TOPIC", "PARTITIONS", "RETENTION", "RETENTION-BYTES", "CLEANUP-POLICY"]
    assert [name, "1", "36h", "unlimited", "delete"] in table
    yaml = rota("topics", "list", "-o", "yaml").stdout
    assert f"- topic: {name}\n  partitions: 1\n  retention_ms: 129600000\n  retention_bytes: -1\n" in yaml


def test_a_topic_that_is_there_is_refused_or_left_as_it_is(rota: Rota, name: str) -> None:
    rota("topics", "create", name)
    again = rota("topics", "create", name, "-p", "9")
    assert (again.code, "the topic already exists" in again.error) == (1, True)
    same = rota("topics", "create", name, "-p", "9", "--if-not-exists")
    assert same.lines == [f"topic {name} already exists"]
    assert len(rota("topics", "describe", name, "-o", "json").data) == 1


def test_deleting_is_to_be_meant_and_deletes_all_or_nothing(rota: Rota, name: str) -> None:
    rota("topics", "create", name)
    with Producer(rota.servers) as producer:
        producer.send(name, b"x").result(10)
    assert "add --yes to confirm" in rota("topics", "delete", name).error
    other = rota("topics", "delete", name, "not-there", "--yes")
    assert (other.code, other.error.split(":")[0]) == (4, "topic not-there not found at rota")
    with LogReader(rota.servers) as reader:
        assert [batch.values for batch in reader.read(name, 0)] == [[b"x"]]


def test_records_before_an_offset_are_deleted_when_that_is_meant(rota: Rota, name: str) -> None:
    rota("topics", "create", name, "-p", "2")
    rota("produce", name, "--partition", "1", stdin="a\nb\nc\n")
    before = ("topics", "delete-records", name, "--partition", "1", "--before")
    assert f"offsets 0 to 1 of {name}[1] would be deleted" in rota(*before, "2").error
    assert f"{name}[1] ends at offset 3" in rota(*before, "4", "--yes").error
    missing = rota("topics", "delete-records", name, "--partition", "2", "--before", "1", "--yes")
    assert "has no partition 2 (it has 2)" in missing.error
    for _ in range(2):
        assert rota(*before, "2", "--yes").lines == [f"{name}[1] starts at offset 2"]
    assert rota("consume", name, "--from-beginning", "--value-only").lines == ["c"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "x", "-p", "0"], "'--partitions' / '-p': Input should be greater than or equal to 1"),
        (
            ["create", "x", "--retention", "a while"],
            "--retention a while: expected a duration such as PT1H30M",
        ),
        (
            ["create", "x", "--retention-bytes", "64MB"],
            "--retention-bytes 64MB: expected a size such as 512MiB",
        ),
        (["create"], "Missing argument 'TOPIC': see `rota topics create --help`"),
        (["lst"], "No such command 'lst'. Did you mean 'list'? See `rota topics --help`"),
        (["list", "-o", "xml"], "'xml' is not one of 'table', 'json', 'yaml'"),
        (
            ["list", "-b", "http://here"],
            "--bootstrap-servers: 'http://here' is not an address: use rota://host:7070",
        ),
    ],
)
def test_wrong_usage_is_one_message_and_code_2(rota: Rota, arguments: list[str], says: str) -> None:
    done = rota("topics", *arguments)
    assert done.code == 2
    assert says in done.error


def test_a_server_that_is_not_there_is_code_3_at_once(rota: Rota) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = rota("topics", "list", "-b", f"rota://{address}")
    assert done.code == 3
    assert done.error.startswith(f"cannot connect to {address}: check that it is running")


def test_the_address_that_rota_up_left_in_this_folder_is_used(rota: Rota, name: str, tmp_path: Path) -> None:
    rota("topics", "create", name)
    (tmp_path / ".rota").mkdir()
    (tmp_path / ".rota/address").write_text(f"{rota.servers}\n")
    done = rota("topics", "list", "-o", "json", environment={"ROTA_BOOTSTRAP_SERVERS": ""})
    assert name in {each["topic"] for each in json.loads(done.stdout)}


def test_a_command_without_arguments_shows_its_help(rota: Rota) -> None:
    done = rota("topics")
    assert (done.code, done.stdout) == (2, "")
    assert "Usage: rota topics [OPTIONS] COMMAND" in done.stderr
