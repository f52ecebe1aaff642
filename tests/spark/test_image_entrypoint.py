"""The entry point of images with Spark: what it becomes for the arguments and variables that Spark gives to drivers and executors."""

import pytest

from spark_apps.packaging.entrypoint import EXECUTOR, command

VARIABLES = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@orders-driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "orders-exec-1",
}


def test_a_driver_is_submitted_in_client_mode_at_the_address_of_its_pod() -> None:
    arguments = ["driver", "--properties-file", "/opt/spark/conf/spark.properties", "local:///app/enrich.py"]
    assert command(arguments, {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5"}) == [
        "spark-submit",
        *("--conf", "spark.driver.bindAddress=10.0.0.5"),
        *("--deploy-mode", "client"),
        *arguments[1:],
    ]


def test_an_executor_has_the_java_options_of_its_environment_in_their_order() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number}" for number in (10, 9, 0)}
    arguments = command(["executor"], {**VARIABLES, **options})
    assert arguments[:6] == [
        "java",
        "-Doption=0",
        "-Doption=9",
        "-Doption=10",
        "-Xms512m",
        "-Xmx512m",
    ]
    assert arguments[6:9] == ["-cp", "/opt/spark/conf:/opt/spark/jars/*", EXECUTOR]
    assert dict(zip(arguments[9::2], arguments[10::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@orders-driver:7078",
        "--executor-id": "1",
        "--cores": "1",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "orders-exec-1",
    }


def test_classes_that_the_driver_names_come_last() -> None:
    arguments = command(["executor"], {**VARIABLES, "SPARK_CLASSPATH": "/app/orders.jar"})
    assert arguments[arguments.index("-cp") + 1] == "/opt/spark/conf:/opt/spark/jars/*:/app/orders.jar"


def test_a_variable_that_spark_has_not_set_is_named() -> None:
    with pytest.raises(KeyError, match="SPARK_DRIVER_URL"):
        command(
            ["executor"], {name: value for name, value in VARIABLES.items() if name != "SPARK_DRIVER_URL"}
        )


@pytest.mark.parametrize("arguments", [["python", "shop.py"], ["sh"]])
def test_other_programs_are_run_as_they_are(arguments: list[str]) -> None:
    assert command(arguments, {}) == arguments


def test_without_a_program_it_is_a_python() -> None:
    assert command([], {}) == ["python"]
