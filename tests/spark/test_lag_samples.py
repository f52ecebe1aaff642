"""Samples of lag as the report reads them: no Spark session."""

import json

import pytest

from rota_spark.core.lag import LagSample, samples_of

PARTITION = {"topic": "orders", "partition": 0, "committed": 3, "start": 0, "end": 5, "lag_records": 2}


def document(*partitions: object, group: object = "shop") -> bytes:
    return json.dumps({"group": group, "lag_records": 2, "partitions": partitions}).encode()


def test_a_document_has_a_sample_of_each_partition_and_what_is_unknown_stays_unknown() -> None:
    unknown = {"topic": "orders", "partition": 1, "committed": None, "lag_records": None, "lag_seconds": None}
    assert samples_of(document(PARTITION | {"lag_seconds": 7}, unknown)) == [
        LagSample("shop", "orders", 0, 3, 5, 2, 7.0),
        LagSample("shop", "orders", 1),
    ]
    assert samples_of(document()) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "the record has no value"),
        (b'{"group": "shop"}', "partitions is missing: send the output of rota groups lag -o json"),
        (document(PARTITION, group=None), "group is missing: set it to 1 to 200 printable characters"),
        (document(PARTITION, 1), "a partition has no topic: send the output of rota groups lag"),
        (document(PARTITION | {"partition": None}), "a number of a partition is invalid: send the output"),
        (document(PARTITION | {"lag_records": -1}), "a number of a partition is invalid: send the output"),
        (document(PARTITION | {"end": 1 << 63}), "a number of a partition is invalid: send the output"),
        (document(PARTITION | {"lag_seconds": "long"}), "lag_seconds is invalid: send the output"),
    ],
)
def test_a_record_that_is_not_a_document_has_one_problem_with_its_remedy(
    value: bytes | None, problem: str
) -> None:
    (sample,) = samples_of(value)
    assert sample.problem is not None
    assert sample.problem.startswith(problem)
