"""A job with two tasks that must run at the same time; writes which workers ran them to the file in its argument."""

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession


def run_by(_numbers: Iterable[int]) -> Iterator[str]:
    # By name, for there is such a module on executors only.
    whereabouts = importlib.import_module("whereabouts")
    yield whereabouts.worker()


def main() -> None:
    context = SparkSession.builder.getOrCreate().sparkContext
    # A barrier stage starts when all its tasks can: two executors with one core each.
    workers = context.parallelize([1, 2], 2).barrier().mapPartitions(run_by).collect()
    Path(sys.argv[1]).write_text(json.dumps(workers))
    context.stop()


if __name__ == "__main__":
    main()
