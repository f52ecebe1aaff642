"""Modules that Spark's Python processes load for a query: each question of its planner is a process of its own."""

import pytest

import rota_spark
from tests.support.loaded_modules import loaded_modules

SDK, CLIENTS = {"rota.log_reader", "rota.stores"}, {"confluent_kafka", "grpc", "rota_proto"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [("source", SDK | CLIENTS | {"rota"}), ("readers", SDK | {"confluent_kafka"})],
)
def test_a_planner_and_a_runner_load_what_they_use_alone(module: str, absent: set[str]) -> None:
    loaded = loaded_modules(f"import rota_spark.{module}")
    assert f"rota_spark.{module}" in loaded
    assert loaded.isdisjoint(absent), loaded & absent


def test_every_public_name_is_there_and_no_other_one() -> None:
    assert [getattr(rota_spark, name).__name__ for name in rota_spark.__all__] == rota_spark.__all__
    assert dir(rota_spark) == sorted(rota_spark.__all__)
    absent = "nothing"
    with pytest.raises(AttributeError, match="module 'rota_spark' has no attribute 'nothing'"):
        getattr(rota_spark, absent)
