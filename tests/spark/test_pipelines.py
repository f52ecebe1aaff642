"""Each pipeline end to end, as its command line runs it: topics of a real coordinator, a group, a database."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rota
from rota_spark.core.clicks import Click, Session, sessions_of
from rota_spark.pipelines import clickstream_sessions, lag_report, orders_enrichment
from rota_spark.pipelines.database import connecting, create_tables, rows_of
from tests.cli.command import Rota
from tests.support.coordinator import Coordinator, serving
from tests.support.records import AT_MS, batch, committed, fill, produce
from tests.support.sidecar import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARTITIONS = 2
PRICES = {"apple": 40, "bread": 350}
Order = Mapping[str, object]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield coordinator


@pytest.fixture
def database_file(database: str, tmp_path: Path) -> str:
    """A file that names an empty database of PostgreSQL; unit tests merge on SQLite."""
    file = tmp_path / "database"
    file.write_text(database)
    return str(file)


def arguments(coordinator: Coordinator, name: str, database_file: str) -> list[str]:
    """Arguments of a run up to the end of the topic, with two batches at least."""
    return [
        f"--bootstrap-servers=rota://{coordinator.address}",
        f"--group-id={name}",
        f"--topics={name}",
        f"--database-file={database_file}",
        "--max-records-per-batch=50",
        "--once",
        *(f"--sidecar-flag={each}" for each in QUICK),
    ]


def send_orders(coordinator: Coordinator, topic: str, partition: int, orders: Sequence[Order | str]) -> None:
    """Append orders, or values that are none, of a customer that is named like the partition."""
    values = [each if isinstance(each, str) else json.dumps(each) for each in orders]
    keys = [f"customer-{partition}"] * len(values)
    produce(coordinator.address, topic, partition, batch(values, keys=keys))


def enriched_orders(connect: Callable[[], Any]) -> dict[str, tuple[Any, ...]]:
    columns = "order_id, customer, good, quantity, cents, log_partition, log_offset"
    return {row[0]: row[1:] for row in rows_of(connect, f"SELECT {columns} FROM enriched_orders")}


def test_each_order_has_its_price_once_and_other_records_their_problem(
    spark_session: SparkSession, coordinator: Coordinator, database_file: str, unique_name: str
) -> None:
    connect = connecting(database_file)
    prices = ", ".join(f"('{good}', {cents})" for good, cents in PRICES.items())
    create_tables(
        connect,
        [
            "CREATE TABLE goods (good TEXT PRIMARY KEY, cents BIGINT NOT NULL)",
            f"INSERT INTO goods VALUES {prices}",
        ],
    )
    coordinator.make_topic(unique_name, PARTITIONS)
    for number in range(PARTITIONS):
        orders = [{"order": f"{number}-{each}", "good": "apple", "count": 1 + each % 9} for each in range(45)]
        # The first order is changed later, in the same batch and in another one.
        changed = [{"order": f"{number}-0", "good": "bread", "count": count} for count in (2, 3)]
        bad: list[Order | str] = ["{", {"order": "8", "good": "gold", "count": 1}]
        send_orders(coordinator, unique_name, number, [*orders, *bad, *changed])

    orders_enrichment.main(arguments(coordinator, unique_name, database_file))

    expected = {
        f"{number}-{each}": (
            f"customer-{number}",
            "apple",
            1 + each % 9,
            40 * (1 + each % 9),
            number,
            each,
        )
        for number in range(PARTITIONS)
        for each in range(45)
    } | {f"{number}-0": (f"customer-{number}", "bread", 3, 1050, number, 48) for number in range(PARTITIONS)}
    assert enriched_orders(connect) == expected
    rejected = "SELECT log_partition, log_offset, problem, record_value FROM rejected_orders ORDER BY 1, 2"
    assert rows_of(connect, rejected) == [
        row
        for number in range(PARTITIONS)
        for row in (
            (number, 45, "the value is not JSON: JSONDecodeError", "{"),
            (
                number,
                46,
                "the table goods has no price of gold",
                '{"order": "8", "good": "gold", "count": 1}',
            ),
        )
    ]
    assert committed(coordinator.address, unique_name) == {
        (unique_name, number): 49 for number in range(PARTITIONS)
    }


def test_sessions_over_all_batches_are_merged_once_and_other_records_are_dead_letters(
    spark_session: SparkSession,
    coordinator: Coordinator,
    database_file: str,
    unique_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dead_letters = f"{unique_name}-dead-letters"
    coordinator.make_topic(unique_name, PARTITIONS)
    own = ["--gap-seconds=10", "--late-seconds=100", f"--dead-letter-topic={dead_letters}"]
    run = [*arguments(coordinator, unique_name, database_file), *own]
    with pytest.raises(SystemExit):
        clickstream_sessions.main(run)
    assert f"the dead-letter topic {dead_letters} cannot be used" in capsys.readouterr().err
    coordinator.make_topic(dead_letters, 1)
    clicks = []
    for number in range(PARTITIONS):
        # Out of order, and with pauses that only clicks of a later batch fill.
        users = [f"{number}-ann", f"{number}-bob"]
        sent = [Click(users[each % 2], AT_MS - each * 7919 % 90_000) for each in range(60)]
        values = [json.dumps({"user": each.user, "at_ms": each.at_ms}) for each in sent]
        late = json.dumps({"user": users[0], "at_ms": AT_MS - 100_001})
        keys = [*(each.user for each in sent), users[0], users[1]]
        produce(coordinator.address, unique_name, number, batch([*values, late, "{"], keys=keys))
        clicks += sent

    clickstream_sessions.main(run)

    connect = connecting(database_file)
    found = rows_of(
        connect, "SELECT user_id, first_ms, last_ms, clicks FROM sessions ORDER BY user_id, first_ms"
    )
    assert [Session(*each) for each in found] == sessions_of(clicks, 10_000)
    assert committed(coordinator.address, unique_name) == {
        (unique_name, number): 62 for number in range(PARTITIONS)
    }
    with rota.LogReader(f"rota://{coordinator.address}") as reader:
        (fetched,) = reader.fetch({(dead_letters, 0): 0})
    rejected = {
        tuple((headers[f"rota-dlq-{name}"] or b"").decode() for name in ("partition", "offset", "reason"))
        for headers in (dict(each.headers) for each in fetched)
    }
    late = "late: at_ms is 100001 ms before the timestamp of the record, and 100000 ms are allowed"
    assert rejected == {
        (str(number), *problem)
        for number in range(PARTITIONS)
        for problem in (("60", late), ("61", "the value is not JSON: JSONDecodeError"))
    }


def test_the_report_has_the_lag_of_each_window_from_outputs_of_the_command(
    spark_session: SparkSession,
    coordinator: Coordinator,
    tmp_path: Path,
    unique_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, history = f"rota://{coordinator.address}", f"{unique_name}-history"
    coordinator.make_topic(history, 1)
    coordinator.make_topic(unique_name, 1)
    command = Rota(address, tmp_path)
    assert (
        command("groups", "reset", unique_name, "--topic", unique_name, "--to-earliest", "--execute").code
        == 0
    )
    hour_ms = 3_600_000
    start_ms = AT_MS - AT_MS % hour_ms
    with rota.Producer(address) as producer:
        for at_ms, more in ((0, 100), (10_000, 20), (hour_ms, 0)):
            if more:
                fill(coordinator.address, unique_name, 1, more)
            sample = command("groups", "lag", unique_name, "-o", "json").stdout.encode()
            producer.send(history, sample, timestamp_ms=start_ms + at_ms)
        producer.send(history, b"[]", timestamp_ms=start_ms)

    output = tmp_path / "report"
    lag_report.main([f"--bootstrap-servers={address}", f"--topic={history}", f"--output={output}"])

    (file,) = output.glob("part-*.json")
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    expected = {"samples": 2, "samples_with_unknown_lag": 0, "lag_records_max": 120, "lag_records_last": 120}
    rates = {"produced_per_second": 2.0, "committed_per_second": 0.0}
    assert first.items() >= {"group_id": unique_name, "topic": unique_name, **expected, **rates}.items()
    assert first["lag_seconds_max"] > 0
    # A single sample has no rates.
    assert second.items() >= {"samples": 1, "lag_records_max": 120, "lag_records_last": 120}.items()
    assert "produced_per_second" not in second
    assert "records left out of the report: 1 (the value is not a JSON object)" in caplog.text
