"""Files of committed offsets on Kafka: `rota groups` and Kafka's own tool read what the other has written."""

from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.support.kafka import Kafka
from tests.support.kafka.consumers import plain, wait_for_shares
from tests.support.kafka.tools import export_offsets, import_offsets

pytestmark = pytest.mark.kafka


@pytest.fixture
def rota(kafka: Kafka, tmp_path: Path) -> Rota:
    return Rota(kafka.bootstrap, tmp_path)


@pytest.fixture
def group(rota: Rota, kafka: Kafka, unique_name: str) -> str:
    """Of five and three records four and one are done; its topic is called the same, and Kafka quotes names of this length."""
    name = f"{unique_name}-with-a-long-name"
    kafka.create_topic(name, partitions=2)
    for partition, count in enumerate((5, 3)):
        assert rota("produce", name, "--partition", str(partition), stdin="x\n" * count).code == 0
    set_offsets(rota, name, name, 4, 1)
    return name


def set_offsets(rota: Rota, group: str, topic: str, *offsets: int) -> None:
    for partition, offset in enumerate(offsets):
        chosen = ["--to-offset", str(offset), "--topic", f"{topic}:{partition}"]
        assert rota("groups", "reset", group, *chosen, "--execute").code == 0


def committed(rota: Rota, group: str) -> list[int]:
    return [each["offset"] for each in rota("groups", "offsets", group, "-o", "json").data]


@pytest.mark.parametrize("file", ["offsets.csv", "offsets.json"])
def test_export_reset_and_import_give_the_same_offsets(rota: Rota, group: str, file: str) -> None:
    assert rota("groups", "offsets", group, "--export", file).code == 0
    assert rota("groups", "reset", group, "--to-earliest", "--execute").code == 0
    assert committed(rota, group) == [0, 0]
    assert rota("groups", "reset", group, "--from-file", file, "--execute").code == 0
    assert committed(rota, group) == [4, 1]


def test_kafkas_tool_reads_what_rota_exports(rota: Rota, kafka: Kafka, group: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    assert rota("groups", "offsets", group, "--export", "offsets.csv").code == 0
    assert lines(export_offsets(kafka, [group])) == lines(file.read_text())
    rota("groups", "reset", group, "--to-earliest", "--execute")
    assert lines(import_offsets(kafka, [group], file)) == lines(file.read_text())
    assert committed(rota, group) == [4, 1]


def test_kafkas_tool_reads_what_rota_exports_of_several_groups(
    rota: Rota, kafka: Kafka, group: str, tmp_path: Path
) -> None:
    other, file = f"{group}-2", tmp_path / "offsets.csv"
    set_offsets(rota, other, group, 2, 3)
    assert rota("groups", "offsets", group, other, "--export", "offsets.csv").code == 0
    assert lines(export_offsets(kafka, [group, other])) == lines(file.read_text())
    for each in (group, other):
        rota("groups", "reset", each, "--to-earliest", "--execute")
    assert lines(import_offsets(kafka, [group, other], file)) == lines(file.read_text())
    assert (committed(rota, group), committed(rota, other)) == ([4, 1], [2, 3])


def test_rota_reads_what_kafkas_tool_exports(rota: Rota, kafka: Kafka, group: str, tmp_path: Path) -> None:
    other = f"{group}-2"
    set_offsets(rota, other, group, 2, 3)
    (tmp_path / "one.csv").write_text(export_offsets(kafka, [group]))
    (tmp_path / "two.csv").write_text(export_offsets(kafka, [group, other]))
    for named in ([group], [group, other]):
        for each in (group, other):
            rota("groups", "reset", each, "--to-earliest", "--execute")
        file = "one.csv" if len(named) == 1 else "two.csv"
        assert rota("groups", "reset", *named, "--from-file", file, "--execute").code == 0
        assert committed(rota, group) == [4, 1]
    assert committed(rota, other) == [2, 3]


def test_offsets_are_deleted_unless_members_subscribe(rota: Rota, kafka: Kafka, group: str) -> None:
    old = f"{group}-old"
    kafka.create_topic(old, partitions=2)
    set_offsets(rota, group, old, 0, 0)
    assert "add --yes to confirm" in rota("groups", "delete-offsets", group, "--topic", old).error
    with plain(kafka, group, group, "range"):
        wait_for_shares(kafka, group, {"plain": 2})
        kept = rota("groups", "delete-offsets", group, "--topic", group, "--yes")
        assert kept.error.startswith(f"group {group} has members that subscribe to {group}, whose offsets ar")
        done = rota("groups", "delete-offsets", group, "--topic", f"{old}:1", "--yes")
        assert done.lines == [f"deleted 1 committed offset of group {group}: {old}[1]"]
    remaining = rota("groups", "offsets", group, "-o", "json").data
    assert [(each["topic"], each["partition"]) for each in remaining] == [(group, 0), (group, 1), (old, 0)]
    chosen = ["--topic", group, "--topic", old]
    assert rota("groups", "delete-offsets", group, *chosen, "--yes").code == 0
    assert rota("groups", "offsets", group, "-o", "json").data == []


def lines(text: str) -> list[str]:
    """Lines of a file in one order: Kafka's tool writes them in that of a hash table."""
    return sorted(line for line in text.splitlines() if line)
