"""Page, table, `rota groups lag` and Kafka's own tool say the same of groups on Kafka's brokers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.operator.local.comparing import By, Engine, Numbers, Scenario, numbers_are_the_same
from tests.support.kafka import Kafka
from tests.support.kafka.consumers import plain
from tests.support.kafka.tools import describe_groups
from tests.support.processes import wait_for

pytestmark = pytest.mark.kafka


def test_page_table_command_line_and_kafkas_own_tool_say_the_same(
    kafka: Kafka, unique_name: str, tmp_path: Path
) -> None:
    scenario = Scenario(tmp_path, unique_name)

    def commit(group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        with closing(Consumer({**kafka.client_config(), "group.id": group})) as consumer:
            positions = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=positions, asynchronous=False)

    def tool(groups: Sequence[str]) -> Mapping[str, By]:
        found: dict[str, dict[tuple[str, int], Numbers]] = defaultdict(dict)
        for row in describe_groups(kafka, groups):
            said = (
                None if row[name] == "-" else int(row[name])
                for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
            )
            found[row["GROUP"]][row["TOPIC"], int(row["PARTITION"])] = Numbers(*said)
        return found

    scenario.declare()
    with scenario.groups.running(scenario.groups.manifests, kafka=kafka.bootstrap) as scenario.groups.process:
        wait_for("the page", lambda: bool(scenario.page()), within_s=60)
        engine = Engine(
            kafka.bootstrap, commit, lambda group, topic: plain(kafka, topic, group, "range"), tool
        )
        numbers_are_the_same(scenario, engine)
