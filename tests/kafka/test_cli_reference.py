"""The reference's commands for Kafka run on a real broker."""

import re
import shlex
from pathlib import Path

import pytest

from scripts.generate_cli_reference import FILE
from tests.cli.command import Rota
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

EXAMPLES = [
    line
    for block in re.findall(r"```kafka\n(.*?)```", FILE.read_text(), re.DOTALL)
    for line in block.splitlines()
]


def test_every_example_for_kafka_runs(kafka: Kafka, tmp_path: Path) -> None:
    assert EXAMPLES
    for example in EXAMPLES:
        there = example.replace("127.0.0.1:9092", kafka.bootstrap)
        assert there != example
        assert Rota("", tmp_path)(*shlex.split(there)[1:]).code == 0, there
