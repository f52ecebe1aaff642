"""Page, table and `rota groups lag` say the same of groups that Rota coordinates."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.groups import commit
from tests.operator.local.comparing import By, Engine, Scenario, by_page, numbers_are_the_same
from tests.support.processes import wait_for
from tests.support.sidecar import Sidecar, running

pytestmark = pytest.mark.process


def test_page_table_and_command_line_say_the_same(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "shop")

    @contextmanager
    def foreign(group: str, topic: str) -> Iterator[None]:
        flags = [f"--topics={topic}", "--client-id=foreign", "--assignors=range"]
        member = Sidecar(tmp_path / group, scenario.groups.address, group, flags, name=group)
        with running(member):
            yield

    def no_tool(groups: Sequence[str]) -> Mapping[str, By]:
        """Kafka's tool does not speak with Rota."""
        return {group: by_page(scenario.page()[group]) for group in groups}

    scenario.declare()
    with scenario.groups.running(scenario.groups.manifests) as scenario.groups.process:
        address = scenario.groups.address
        wait_for("the page", lambda: bool(scenario.page()), within_s=60)
        engine = Engine(
            address,
            lambda group, offsets: commit(address.removeprefix("rota://"), group, offsets),
            foreign,
            no_tool,
        )
        numbers_are_the_same(scenario, engine)
