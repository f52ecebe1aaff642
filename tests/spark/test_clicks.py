"""Clicks, sessions, and how the sink merges them: no Spark session."""

import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_spark.core.clicks import Click, Session, click_of, sessions_of
from rota_spark.pipelines import clickstream_sessions
from rota_spark.pipelines.clickstream_sessions import TABLES, merge_of
from rota_spark.pipelines.database import connecting, create_tables, rows_of

LOGGED_MS = 1_000_000
GAP_MS = 5


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"ann", None, "the record has no value"),
        (b"ann", b"{", "the value is not JSON: JSONDecodeError"),
        (b"ann", b'{"at_ms": 1000000}', "user is missing: set it to 1 to 200 printable characters"),
        (None, b'{"user": "ann", "at_ms": 1000000}', "the key is not the user: use the user as key"),
        (b"ann", b'{"user": "ann"}', "at_ms is missing: set it to milliseconds since the epoch"),
        (b"ann", b'{"user": "ann", "at_ms": "now"}', "at_ms is invalid: set it to milliseconds"),
        (b"ann", b'{"user": "ann", "at_ms": 989999}', "late: at_ms is 10001 ms before the timestamp"),
        (b"ann", b'{"user": "ann", "at_ms": 1010001}', "at_ms is 10001 ms after the timestamp of the record"),
    ],
)
def test_a_record_that_is_late_or_not_a_click_has_a_problem_with_its_remedy(
    key: bytes | None, value: bytes | None, problem: str
) -> None:
    assert click_of(key, value, LOGGED_MS, 10_000).problem.startswith(problem)


def test_a_record_without_a_timestamp_is_not_judged_late_but_rejected() -> None:
    value = b'{"user": "ann", "at_ms": 1000000}'
    assert click_of(b"ann", value, None, 10_000).problem == "the record has no timestamp"


@pytest.mark.parametrize("at_ms", [990_000, 1_010_000])
def test_a_click_within_the_allowed_time_counts(at_ms: int) -> None:
    value = b'{"user": "ann", "at_ms": %d, "page": "/"}' % at_ms
    assert click_of(b"ann", value, LOGGED_MS, 10_000) == Click("ann", at_ms)


clicks = st.builds(Click, st.sampled_from(["ann", "bob"]), st.integers(0, 60))


@given(st.lists(clicks, max_size=30))
def test_sessions_have_all_clicks_and_pauses_longer_than_the_gap_between_them(drawn: list[Click]) -> None:
    found = sessions_of(drawn, GAP_MS)
    assert sum(each.clicks for each in found) == len(drawn)
    for one, later in pairwise(found):
        assert one.user < later.user or later.first_ms - one.last_ms > GAP_MS


@settings(max_examples=150)
@given(st.lists(st.lists(clicks, max_size=6), max_size=6), st.integers(1, 3))
def test_sessions_merged_over_any_batches_and_tasks_are_those_of_all_clicks_together(
    batches: list[list[Click]], tasks: int
) -> None:
    merge = [
        each.replace("{staged}", "(SELECT * FROM given) AS staged")
        for each in merge_of(GAP_MS, locks_table=False)
    ]
    database = sqlite3.connect(":memory:")
    columns = "user_id TEXT, first_ms BIGINT, last_ms BIGINT, clicks BIGINT"
    for each in (*TABLES, f"CREATE TABLE given ({columns})"):
        database.execute(each)
    for batch in batches:
        # Tasks that have clicks of the same user, as after a change of the number of partitions.
        staged = [each for task in range(tasks) for each in sessions_of(batch[task::tasks], GAP_MS)]
        database.execute("DELETE FROM given")
        database.executemany("INSERT INTO given VALUES (?, ?, ?, ?)", staged)
        for each in merge:
            database.execute(each)
    found = database.execute(
        "SELECT user_id, first_ms, last_ms, clicks FROM sessions ORDER BY 1, 2"
    ).fetchall()
    database.close()
    assert [Session(*each) for each in found] == sessions_of(
        [each for batch in batches for each in batch], GAP_MS
    )


def test_the_table_is_created_once(tmp_path: Path) -> None:
    (tmp_path / "database").write_text(f"sqlite:{tmp_path / 'clicks.db'}")
    connect = connecting(str(tmp_path / "database"))
    for _ in range(2):
        create_tables(connect, TABLES)
    assert rows_of(connect, "SELECT * FROM sessions") == []


@pytest.mark.parametrize("flag", ["--gap-seconds", "--late-seconds"])
def test_times_below_a_second_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        clickstream_sessions.main(["--bootstrap-servers=rota://x", "--database-file=/none", f"{flag}=0"])
    assert ended.value.code == 1
    assert f"{flag} is 0: use an integer from 1" in capsys.readouterr().err
