"""The connection settings of an executor that reads Kafka come from its environment."""

from pathlib import Path

import pytest

from rota_spark.kafka_records import PROPERTIES_VARIABLE, configuration
from rota_spark.log_records import ReadFailed


def test_the_login_and_the_file_of_properties_are_those_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "properties"
    file.write_text("# of the cluster\nssl.ca.location = /etc/ca.crt\n\nsasl.password=a=b\n")
    variables = {"ROTA_SASL_MECHANISM": "PLAIN", "ROTA_SASL_USERNAME": "u", "ROTA_SASL_PASSWORD": "p"}
    assert configuration("k:9092", {}) == {"bootstrap.servers": "k:9092"}
    assert configuration("k:9092", {**variables, PROPERTIES_VARIABLE: str(file)}) == {
        "bootstrap.servers": "k:9092",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "a=b",
        "ssl.ca.location": "/etc/ca.crt",
    }


def test_a_file_that_an_executor_does_not_have_is_named_with_the_remedy(tmp_path: Path) -> None:
    missing = {PROPERTIES_VARIABLE: str(tmp_path / "none")}
    with pytest.raises(
        ReadFailed, match=r"cannot be read \(No such file or directory\): mount it into the executors"
    ):
        configuration("k:9092", missing)
