"""Which tests run, and the fixtures of every real system by the name of the system."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No drawn test depends on how fast the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# The asserts of the modules beside the tests show their values too, not only those of the tests.
pytest.register_assert_rewrite(
    *(f"tests.{folder.name}" for folder in Path(__file__).parent.iterdir() if folder.is_dir())
)

pytest_plugins = [
    "tests.support.cluster.fixtures",
    "tests.support.garbage",
    "tests.support.hangs",
    "tests.support.kafka.fixtures",
    "tests.support.ownership",
    "tests.support.postgres.fixtures",
    "tests.support.prometheus.fixtures",
    "tests.support.report",
    "tests.support.selection",
    "tests.support.spark.fixtures",
]
