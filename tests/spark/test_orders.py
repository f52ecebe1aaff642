"""Orders as the pipeline reads them, and the file that names its database: no Spark session."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_spark.core.json_values import text_of
from rota_spark.core.orders import Order, order_of
from rota_spark.pipelines import orders_enrichment
from rota_spark.pipelines.database import PipelineFailed, connecting, create_tables, dsn_in, dsn_of, rows_of
from rota_spark.pipelines.orders_enrichment import COLUMNS, MERGE, TABLES, goods_in


def test_an_order_has_its_name_its_good_and_a_count() -> None:
    assert order_of(b'{"order": "7", "good": "egg", "count": 1000000, "more": null}') == Order(
        "7", "egg", 1_000_000
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "the record has no value"),
        (b"", "the value is not JSON: JSONDecodeError"),
        (b"\xff", "the value is not JSON: UnicodeDecodeError"),
        (b"[" * 100_000, "the value is not JSON: RecursionError"),
        (b"[]", "the value is not a JSON object"),
        (b'{"good": "egg", "count": 1}', "order is missing: set it to 1 to 200 printable characters"),
        (
            b'{"order": "7", "good": 1, "count": 1}',
            "good is invalid: set it to 1 to 200 printable characters",
        ),
        (
            b'{"order": "\\u0000", "good": "egg", "count": 1}',
            "order is invalid: set it to 1 to 200 printable",
        ),
        (
            b'{"order": "\\ud800", "good": "egg", "count": 1}',
            "order is invalid: set it to 1 to 200 printable",
        ),
        (b'{"order": "7", "good": "egg"}', "count is missing: set it to an integer from 1 to 1,000,000"),
        (b'{"order": "7", "good": "egg", "count": true}', "count is invalid: set it to an integer from 1"),
        (b'{"order": "7", "good": "egg", "count": 1.5}', "count is invalid: set it to an integer from 1"),
        (b'{"order": "7", "good": "egg", "count": 0}', "count is invalid: set it to an integer from 1"),
    ],
)
def test_a_record_that_is_not_an_order_has_a_problem_with_its_remedy(
    value: bytes | None, problem: str
) -> None:
    found = order_of(value)
    assert (found.order, found.good, found.quantity) == (None, None, None)
    assert found.problem is not None
    assert found.problem.startswith(problem)


@given(st.binary(max_size=200) | st.none())
def test_every_record_is_an_order_or_has_a_problem_and_its_text_can_be_stored(value: bytes | None) -> None:
    found = order_of(value)
    assert (found.problem is None) == (found.order is not None)
    text = text_of(value)
    assert (text is None) == (value is None)
    assert text is None or "\0" not in text
    assert (text or "").encode().decode() == (text or "")


def test_a_table_of_goods_that_is_missing_or_has_other_columns_is_refused_with_what_it_needs(
    tmp_path: Path,
) -> None:
    (tmp_path / "database").write_text(f"sqlite:{tmp_path / 'shop.db'}\n")
    connect = connecting(str(tmp_path / "database"))
    with pytest.raises(
        PipelineFailed, match=r"no such table: goods.*it needs the columns good .text. and cents"
    ):
        goods_in(connect)
    create_tables(connect, ["CREATE TABLE goods (good TEXT, price BIGINT)"])
    with pytest.raises(PipelineFailed, match=r"no such column: cents.*it needs the columns good"):
        goods_in(connect)
    create_tables(connect, ["DROP TABLE goods", "CREATE TABLE goods (good TEXT, cents BIGINT)"])
    assert goods_in(connect) == []


def test_the_pipelines_tables_are_created_once(tmp_path: Path) -> None:
    (tmp_path / "database").write_text(f"sqlite:{tmp_path / 'shop.db'}")
    connect = connecting(str(tmp_path / "database"))
    for _ in range(2):
        create_tables(connect, TABLES)
    assert rows_of(connect, "SELECT * FROM enriched_orders") == []


def test_the_last_record_of_an_order_counts_in_a_batch_and_over_batches(tmp_path: Path) -> None:
    (tmp_path / "database").write_text(f"sqlite:{tmp_path / 'shop.db'}")
    connect = connecting(str(tmp_path / "database"))
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    create_tables(connect, [*TABLES, f"CREATE TABLE given ({columns})"])

    def merge(*rows: str) -> None:
        merged = [each.replace("{staged}", "(SELECT * FROM given) AS staged") for each in MERGE]
        create_tables(connect, ["DELETE FROM given", f"INSERT INTO given VALUES {', '.join(rows)}", *merged])

    merge(
        "('7', 'c', 'egg', 2, 70, 't', 0, 11, NULL, NULL)",
        "('7', 'c', 'egg', 1, 35, 't', 0, 10, NULL, NULL)",
        "(NULL, 'c', NULL, NULL, NULL, 't', 0, 12, 'wrong', 'text')",
    )
    orders = "SELECT order_id, quantity, cents, log_offset FROM enriched_orders"
    assert rows_of(connect, orders) == [("7", 2, 70, 11)]
    merge("('7', 'c', 'egg', 3, 105, 't', 0, 13, NULL, NULL)")
    # A reset of the offsets repeats records, with the same result at its end.
    merge("(NULL, 'c', NULL, NULL, NULL, 't', 0, 12, 'still wrong', 'text')")
    assert rows_of(connect, orders) == [("7", 3, 105, 13)]
    assert rows_of(connect, "SELECT * FROM rejected_orders") == [("t", 0, 12, "still wrong", "text")]


def test_a_file_that_names_no_database_is_refused_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "database"
    with pytest.raises(PipelineFailed, match=r"cannot be read .No such file or directory.: mount it into"):
        dsn_in(str(file))
    file.write_text("mysql://planted")
    with pytest.raises(PipelineFailed, match="does not name a database: write sqlite:") as refused:
        dsn_in(str(file))
    assert "planted" not in str(refused.value)


def test_a_variable_that_names_no_database_is_refused_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP", raising=False)
    with pytest.raises(PipelineFailed, match="the variable SHOP, which --database-variable names"):
        dsn_of("SHOP")
    monkeypatch.setenv("SHOP", "mysql://planted")
    with pytest.raises(PipelineFailed, match="set it to sqlite:/path/of/file") as refused:
        connecting(None, "SHOP")()
    assert "planted" not in str(refused.value)
    monkeypatch.setenv("SHOP", f"sqlite:{tmp_path / 'shop.db'}")
    assert rows_of(connecting(None, "SHOP"), "SELECT 1") == [(1,)]


def test_a_pipeline_that_cannot_start_exits_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "database").write_text(f"sqlite:{tmp_path / 'shop.db'}")
    with pytest.raises(SystemExit) as ended:
        orders_enrichment.main(["--bootstrap-servers=rota://x", f"--database-file={tmp_path / 'database'}"])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m rota_spark.pipelines.orders_enrichment: the table goods cannot be read")
