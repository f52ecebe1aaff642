"""A small job, run once per machine, whose driver loads the classes that later Javas find in an archive."""

from pyspark.sql import SparkSession

context = SparkSession.builder.getOrCreate().sparkContext
context.parallelize([1, 2], 2).map(str).collect()
context.stop()
