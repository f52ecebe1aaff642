"""
The Python data source `rota`.

Spark's planner starts a process for each question about it: which options it takes, which schema it has. So this module imports no
more than these need; `readers` is loaded by the process that is asked for a reader, and by those that read.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType
from typing_extensions import override

from rota_spark.columns import SCHEMA
from rota_spark.core.options import SIDECAR, TOPICS, InvalidOption, options_of


class RotaDataSource(DataSource):
    """`format("rota")`: records of a consumer group's partitions as a stream, or of whole topics as a batch."""

    @classmethod
    @override
    def name(cls) -> str:
        return "rota"

    @override
    def schema(self) -> StructType:
        options_of(self.options)
        return SCHEMA

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        options = options_of(self.options)
        if not options.topics:
            raise InvalidOption(
                f'the option {TOPICS} is missing: set it to the topics to read, as "orders,payments"'
            )
        from rota_spark.readers import TopicReader

        return TopicReader(options)

    @override
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = options_of(self.options)
        if not options.sidecar:
            raise InvalidOption(
                f"the option {SIDECAR} is missing: a stream reads the partitions of a group's member, so start the query "
                "with rota_spark.process, which attaches to a sidecar; spark.read reads topics without a group"
            )
        from rota_spark.readers import GroupReader

        return GroupReader(options)
