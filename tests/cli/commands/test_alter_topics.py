"""`rota topics add-partitions` and `rota topics alter`."""

import pytest

from rota import LogReader
from rota_cli.clusters.model import TopicConfig
from rota_cli.commands.alter_topics import changes_of
from rota_cli.errors import WrongUsage
from tests.cli.command import Rota


def test_changes_are_described_in_their_largest_unit() -> None:
    assert changes_of(TopicConfig(-1, 1 << 29)) == ["retention forever", "retention bytes 512MiB"]
    assert changes_of(TopicConfig(None, -1)) == ["retention bytes unlimited"]
    assert changes_of(TopicConfig(None, None, "compact", 3_600_000)) == [
        "cleanup policy compact",
        "delete retention 1h",
    ]


@pytest.mark.parametrize(
    ("kept_ms", "kept_bytes", "says"),
    [
        (None, None, "nothing to alter: add --retention, --retention-bytes, --cleanup-policy or "),
        (0, None, "--retention must be at least 1: "),
        (1, 0, "--retention-bytes must be at least 1: "),
    ],
)
def test_a_retention_that_changes_or_keeps_nothing_is_refused(
    kept_ms: int | None, kept_bytes: int | None, says: str
) -> None:
    with pytest.raises(WrongUsage, match=f"^{says}"):
        changes_of(TopicConfig(kept_ms, kept_bytes))


@pytest.mark.process
def test_partitions_are_added_and_records_stay(rota: Rota, name: str) -> None:
    rota("topics", "create", name, "-p", "2")
    rota("produce", name, "--partition", "1", stdin="a\nb\n")
    done = rota("topics", "add-partitions", name, "--partitions", "3")
    assert done.lines == [f"topic {name} has 3 partitions"]
    assert done.stderr == "records with a key may go to other partitions from now on\n"
    assert [each["end"] for each in rota("topics", "describe", name, "-o", "json").data] == [0, 2, 0]
    for count in ("1", "3"):
        again = rota("topics", "add-partitions", name, "--partitions", count)
        assert (again.code, again.error) == (
            1,
            f"topic {name} has 3 partitions, and the number never decreases: --partitions must be at least 4",
        )
    assert rota("topics", "add-partitions", "not-there", "--partitions", "3").code == 4
    assert rota("topics", "add-partitions", name).code == 2


@pytest.mark.process
def test_retention_is_altered_as_far_as_it_is_given(rota: Rota, name: str) -> None:
    rota("topics", "create", name, "--retention", "7d", "--retention-bytes", "64MiB")
    rota("produce", name, stdin="a\n")

    def retention() -> tuple[int, int]:
        (found,) = [each for each in rota("topics", "list", "-o", "json").data if each["topic"] == name]
        return found["retention_ms"], found["retention_bytes"]

    altered = rota("topics", "alter", name, "--retention", "12h")
    assert altered.lines == [f"altered topic {name}: retention 12h"]
    assert retention() == (43_200_000, 64 << 20)
    assert rota("topics", "alter", name, "--retention-bytes", "unlimited").code == 0
    assert retention() == (43_200_000, -1)
    with LogReader(rota.servers) as reader:
        assert [batch.values for batch in reader.read(name, 0)] == [[b"a"]]
    assert rota("topics", "alter", "not-there", "--retention", "12h").code == 4
    for flags in ([], ["--retention", "0s"], ["--retention", "a while"]):
        assert rota("topics", "alter", name, *flags).code == 2
    assert retention() == (43_200_000, -1)


@pytest.mark.process
def test_the_cleanup_policy_is_created_altered_and_listed(rota: Rota, name: str) -> None:
    rota("topics", "create", name, "--cleanup-policy", "compact", "--delete-retention", "2h")

    def config() -> dict[str, object]:
        (found,) = [each for each in rota("topics", "list", "-o", "json").data if each["topic"] == name]
        return dict(found)

    expected = {"topic": name, "partitions": 1, "retention_ms": -1, "retention_bytes": -1}
    assert config() == expected | {"cleanup_policy": "compact", "delete_retention_ms": 7_200_000}
    wrong = rota("topics", "alter", name, "--retention", "7d")
    assert (wrong.code, "a topic with the cleanup policy compact has no retention" in wrong.error) == (
        1,
        True,
    )
    wrong = rota("topics", "alter", name, "--retention", "7d", "--cleanup-policy", "compact")
    assert (wrong.code, "use compact,delete, or omit the retention" in wrong.error) == (2, True)
    altered = rota("topics", "alter", name, "--cleanup-policy", "compact,delete", "--retention", "7d")
    assert altered.lines == [f"altered topic {name}: retention 7d, cleanup policy compact,delete"]
    assert config()["retention_ms"] == 604_800_000
    assert rota("topics", "create", "other", "--cleanup-policy", "remove").code == 2
