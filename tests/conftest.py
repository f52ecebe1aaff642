"""Which tests run, and the fixtures of every real system by the name of the system."""

pytest_plugins = [
    "tests.support.cluster.fixtures",
    "tests.support.kafka.fixtures",
    "tests.support.postgres.fixtures",
    "tests.support.prometheus.fixtures",
    "tests.support.report",
    "tests.support.selection",
    "tests.support.spark.fixtures",
]
