"""Executors read with credentials of their own environment, which appear nowhere; without them the query says what is missing."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import rota
import rota_spark
from rota_spark import Settings
from tests.spark.results import AVAILABLE_NOW, WITHIN_S, Results
from tests.support.coordinator import QUICK as QUICK_COORDINATOR
from tests.support.coordinator import Coordinator, serving
from tests.support.processes import wait_for
from tests.support.sidecar import QUICK
from tests.support.spark.local import EXECUTORS_TOKEN

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DRIVERS_TOKEN = "planted-token-of-the-driver"
GRANTS = "admin:* topics:* produce:*"
PAGES = ("/environment/", "/jobs/", "/stages/", "/SQL/", "/StreamingQuery/", "/api/v1/applications")
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """A coordinator that knows the driver's token, and in the group `both` the executors'; the driver has its own."""
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    tokens.write_text(
        f"driver plain:{DRIVERS_TOKEN} {GRANTS}\nexecutors plain:{EXECUTORS_TOKEN} consume:both\n"
    )
    tokens.chmod(0o600)
    token.write_text(DRIVERS_TOKEN)
    monkeypatch.setenv("ROTA_TOKEN_FILE", str(token))
    with serving(tmp_path, [*QUICK_COORDINATOR, f"--tokens-file={tokens}"]) as coordinator:
        yield coordinator


def settings(coordinator: Coordinator, name: str) -> Settings:
    """Settings of a group that is named like its topic, which has a record."""
    address = f"rota://{coordinator.address}"
    rota.create_topics(address, {name: 1})
    with rota.Producer(bootstrap_servers=address) as producer:
        producer.send(name, b"a record")
    return Settings(bootstrap_servers=address, group_id=name, topics=[name], sidecar_flags=QUICK)


def command_lines() -> str:
    """Return the arguments of all processes of this machine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes())
        except OSError:  # it has ended meanwhile
            continue
    return b"\n".join(found).decode(errors="replace")


def test_no_token_is_in_arguments_plans_pages_or_the_event_log(
    spark_session: SparkSession, guarded: Coordinator
) -> None:
    results = Results()
    with rota_spark.process(spark_session, results, settings(guarded, "both")) as query:
        wait_for("the record is read", lambda: len(results.rows) == 1, within_s=WITHIN_S)
        context = spark_session.sparkContext
        assert context.uiWebUrl is not None
        port = context.uiWebUrl.rpartition(":")[2]
        shown = {
            page: _direct.open(f"http://127.0.0.1:{port}{page}", timeout=WITHIN_S).read().decode()
            for page in PAGES
        }
        api = f"/api/v1/applications/{context.applicationId}/environment"
        shown[api] = _direct.open(f"http://127.0.0.1:{port}{api}", timeout=WITHIN_S).read().decode()
        shown["arguments"] = command_lines()
        shown["plan"] = query.streaming._jsq.explainInternal(True)  # noqa: FBT003 - of Java
        shown["progress"] = str(query.streaming.recentProgress)
    folder = Path(spark_session.conf.get("spark.eventLog.dir").removeprefix("file:"))  # type: ignore[union-attr]
    shown["event log"] = "".join(file.read_text() for file in folder.rglob("*") if file.is_file())

    assert "rota_sidecar" in shown["arguments"]
    assert "rota" in shown["plan"]
    assert "spark.eventLog.dir" in shown["event log"]
    for where, text in shown.items():
        assert EXECUTORS_TOKEN not in text, where
        assert DRIVERS_TOKEN not in text, where


def test_an_executor_whose_credentials_are_not_enough_fails_the_query_with_what_is_missing(
    spark_session: SparkSession, guarded: Coordinator
) -> None:
    results = Results()
    with (
        pytest.raises(
            StreamingQueryException, match="executors read with the credentials of their own environment"
        ),
        rota_spark.process(
            spark_session, results, settings(guarded, "driver-only"), trigger=AVAILABLE_NOW
        ) as query,
    ):
        query.await_termination(WITHIN_S)
    assert results.rows == []
