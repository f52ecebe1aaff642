"""Submodules of a package are imported without the package's own code, which runs once something else of it is used."""

import subprocess
import sys

import pytest

HEAD = (
    "import sys\nfrom rota_service.partial_packages import load_submodules_only\nload_submodules_only('{}')\n"
)


def printed(package: str, program: str) -> str:
    """Run a program in an interpreter of its own, and return what it prints."""
    command = [sys.executable, "-c", HEAD.format(package) + program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_submodule_is_imported_without_what_the_package_offers() -> None:
    program = "import kafka.protocol.consumer.group as group\nprint(group.__name__, 'kafka.producer' in sys.modules)"
    assert printed("kafka", program) == "kafka.protocol.consumer.group False"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("from kafka import KafkaConsumer\nprint(KafkaConsumer.__name__)", "KafkaConsumer"),
        ("import kafka\nprint(kafka.KafkaProducer.__name__, kafka.__title__)", "KafkaProducer kafka"),
        (
            "from kafka import errors\nprint(errors.__name__, 'kafka.producer' in sys.modules)",
            "kafka.errors False",
        ),
        ("import kafka.errors\nimport kafka\nprint(kafka.TopicPartition.__name__)", "TopicPartition"),
    ],
)
def test_everything_else_of_the_package_is_there_when_it_is_used(program: str, expected: str) -> None:
    assert printed("kafka", program) == expected


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    assert (
        printed("kafka", "import kafka\nprint(hasattr(kafka, 'nothing'), hasattr(kafka, 'nothing'))")
        == "False False"
    )


@pytest.mark.parametrize("package", ["json", "not_installed"])
def test_a_package_that_is_loaded_or_not_installed_is_left_alone(package: str) -> None:
    assert printed(package, f"import json\nprint(json.loads('1'), '{package}' in sys.modules)").startswith(
        "1"
    )
