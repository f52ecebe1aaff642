"""Records that the function of a query has received, for tests."""

from pyspark.sql import DataFrame

WITHIN_S = 120
AVAILABLE_NOW = {"availableNow": True}


class Results:
    """Values that a query's function has seen, in the order of its calls; written by Spark's thread."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str]] = []
        self.batches = 0

    def __call__(self, records: DataFrame) -> None:
        """Collect partition, offset and value of each record."""
        rows = records.selectExpr("partition", "offset", "CAST(value AS STRING)").collect()
        self.rows += [(row[0], row[1], row[2]) for row in rows]
        self.batches += 1

    def offsets(self, partition: int) -> list[int]:
        """Offsets of one partition, as they came."""
        return [offset for number, offset, _ in self.rows if number == partition]
