"""
Lag of a group at a time, as the pipeline `lag_report` reads it: a document of `rota groups lag GROUP -o json` for each record.
"""

from typing import Any, NamedTuple

from rota_spark.core.json_values import json_object, name_problem

COUNTS = ("partition", "committed", "end", "lag_records")


class LagSample(NamedTuple):
    """Lag of one partition at a time. Invariant: without a problem, group, topic and partition are valid."""

    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    # None: unknown, which never counts as 0.
    committed: int | None = None
    end: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    # Text that says what is wrong with the record.
    problem: str | None = None


def samples_of(value: bytes | None) -> list[LagSample]:
    """
    Read a sample of each partition from a document; a value that is not one gives one sample with a problem.

    >>> samples_of(b'{"group": "shop", "partitions": [{"topic": "orders", "partition": 0, "committed": 3, "end": 5, "lag_records": 2}]}')
    [LagSample(group='shop', topic='orders', partition=0, committed=3, end=5, lag_records=2, lag_seconds=None, problem=None)]
    """
    fields = json_object(value)
    if isinstance(fields, str):
        return [LagSample(problem=fields)]
    partitions = fields.get("partitions")
    if (problem := name_problem(fields, "group")) or not isinstance(partitions, list):
        return [
            LagSample(problem=problem or "partitions is missing: send the output of rota groups lag -o json")
        ]
    samples = [_sample(fields["group"], each) for each in partitions]
    return [each for each in samples if each.problem] or samples


def _sample(group: str, fields: Any) -> LagSample:  # noqa: ANN401 - of JSON
    if not isinstance(fields, dict) or name_problem(fields, "topic"):
        return LagSample(problem="a partition has no topic: send the output of rota groups lag -o json")
    partition, committed, end, lag = (fields.get(name) for name in COUNTS)
    seconds = fields.get("lag_seconds")
    if partition is None or not all(
        _is_count(each) for each in (partition, committed, end, lag) if each is not None
    ):
        return LagSample(
            problem="a number of a partition is invalid: send the output of rota groups lag -o json"
        )
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        return LagSample(problem="lag_seconds is invalid: send the output of rota groups lag -o json")
    age_s = None if seconds is None else float(seconds)
    return LagSample(group, fields["topic"], partition, committed, end, lag, age_s)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
