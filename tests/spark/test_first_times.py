"""Timestamps of the first uncommitted records, and the progress of queries, as the driver reports them."""

import math

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_spark.core.first_times import FirstTime, FirstTimes
from rota_spark.progress_listener import ProgressListener, report_of

ONE, OTHER = ("t", 0), ("t", 1)
RUN, OTHER_RUN = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


def test_an_offset_is_looked_up_once_and_only_if_it_has_a_record() -> None:
    times = FirstTimes()
    positions, ends = {ONE: 5, OTHER: 9, ("gone", 0): 1}, {ONE: 8, OTHER: 9}
    assert times.unknown(positions, ends) == {ONE: 5}
    times.add({ONE: 5}, {ONE: 70})
    assert times.unknown(positions, ends) == {}
    assert times.at(positions) == {ONE: FirstTime(5, 70)}


def test_a_record_that_was_not_found_is_looked_up_again() -> None:
    times = FirstTimes()
    times.add({ONE: 5}, {})
    assert times.unknown({ONE: 5}, {ONE: 8}) == {ONE: 5}


def test_the_record_behind_the_batch_in_flight_is_known_when_the_batch_is_committed() -> None:
    times = FirstTimes()
    times.add({ONE: 5}, {ONE: 70})
    times.keep({ONE: 5}, {ONE: 7})
    times.add({ONE: 7}, {ONE: 90})
    assert times.at({ONE: 5}) == {ONE: FirstTime(5, 70)}
    times.keep({ONE: 7}, {})
    assert times.at({ONE: 7}) == {ONE: FirstTime(7, 90)}
    assert times.unknown({ONE: 5}, {ONE: 8}) == {ONE: 5}


def test_after_a_seek_the_time_is_that_of_the_new_position() -> None:
    times = FirstTimes()
    times.add({ONE: 5}, {ONE: 70})
    assert times.at({ONE: 2}) == {}
    assert times.unknown({ONE: 2}, {ONE: 8}) == {ONE: 2}


def progress_of(run_id: str, rows: int) -> QueryProgressEvent:
    """An event of Spark's bus."""
    return QueryProgressEvent(
        StreamingQueryProgress.fromJson(
            {
                "id": run_id,
                "runId": run_id,
                "name": None,
                "timestamp": "",
                "batchId": 0,
                "batchDuration": 2000,
                "numInputRows": rows,
                "processedRowsPerSecond": rows / 2,
                "stateOperators": [],
                "sources": [],
                "sink": {"description": "", "numOutputRows": -1},
            }
        )
    )


def test_only_the_batches_of_the_own_query_are_reported() -> None:
    reports: list[pb.AttachRequest.Report] = []
    listener = ProgressListener(reports.append)
    listener.started(RUN)
    listener.onQueryProgress(progress_of(OTHER_RUN, 7))
    listener.onQueryProgress(progress_of(RUN, 10))
    listener.ended()
    listener.onQueryProgress(progress_of(RUN, 20))
    assert reports == [report_of(10, 5.0, 2000), report_of(20, 10.0, 2000)]


def test_of_a_query_that_did_not_start_nothing_is_reported_and_no_callback_waits() -> None:
    reports: list[pb.AttachRequest.Report] = []
    listener = ProgressListener(reports.append)
    listener.ended()
    listener.onQueryProgress(progress_of(RUN, 10))
    assert reports == []


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_a_rate_that_is_no_number_is_reported_as_zero(rate: float) -> None:
    assert report_of(0, rate, 0).progress.processed_rows_per_second == 0.0
