"""The pages about the consumer name every method and setting, and their samples run."""

import ast
import re
import runpy
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener

import rota
from rota.consumer.options import Options
from rota.consumer.sidecar_options import SIDECAR_SETTINGS
from rota.testing import Group
from tests.support.coordinator import serving
from tests.support.tree import REPO

API = (REPO / "docs/consumer-api.md").read_text()
GUIDE = (REPO / "docs/guide/consumer.md").read_text()
# kafka-python has no interceptors.
OF_JAVA = {"wakeup", "configure", "onConsume", "onCommit"}
SAID = {"buffer_memory": "16 MiB"}


def rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def named(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def public(*kinds: type) -> set[str]:
    return {
        name
        for kind in kinds
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_the_table_names_every_method_of_both() -> None:
    table = [row for row in rows(API) if len(row) == 4]
    ours = {name for row in table for name in named(row[1])}
    theirs = {name for row in table for name in named(row[0])} - OF_JAVA
    assert ours == public(rota.Consumer, rota.AsyncConsumer, rota.RebalanceListener, rota.ConsumerInterceptor)
    assert theirs == public(KafkaConsumer, ConsumerRebalanceListener)


def test_every_test_that_the_table_names_is_there() -> None:
    tests = {
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    table = [row for row in rows(API) if len(row) == 4 and row[1] not in ("rota", "")]
    assert table
    assert {name for row in table for name in named(row[3])} <= tests
    assert [row[1] for row in table if not named(row[3])] == []


def test_the_guide_names_every_setting_with_its_default() -> None:
    section = GUIDE.split("\n## Settings\n", 1)[1]
    documented = {row[0].strip("`"): row[1].strip("`") for row in rows(section) if row[0] != "setting"}
    assert set(documented) == {each.name for each in fields(Options)}
    for each in fields(Options):
        if each.name not in SIDECAR_SETTINGS:
            default = () if each.default is MISSING else each.default
            assert documented[each.name] == SAID.get(each.name, "" if default in ("", None) else str(default))


def samples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_all_samples_can_be_read() -> None:
    for sample in samples():
        ast.parse(sample if "async with" not in sample else f"async def f():\n{_indented(sample)}")


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def test_the_sample_of_a_handler_passes_the_sample_of_its_test(tmp_path: Path) -> None:
    handler = next(each for each in samples() if "@rota.handler" in each).partition("rota.run(")[0]
    test = next(each for each in samples() if "test_bad_orders" in each)
    script = tmp_path / "sample.py"
    script.write_text(f"{handler}\n{test}")
    runpy.run_path(str(script))["test_bad_orders_are_put_aside"]()


@pytest.mark.process
def test_the_first_sample_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as coordinator:
        server = f"rota://{coordinator.address}"
        rota.create_topics(server, {"orders": 1})
        with rota.Producer(server) as producer:
            producer.send("orders", b"value", key=b"key").result(10)
        sample = samples()[0].replace("rota://127.0.0.1:7070", server)
        script = tmp_path / "sample.py"
        # Without an end, a sample that works would not end.
        ending = sample.replace(") as consumer:", ", consumer_timeout_ms=5000) as consumer:")
        assert ending != sample
        script.write_text(ending)
        runpy.run_path(str(script))
    assert capsys.readouterr().out == "0 0 b'key' b'value'\n"


def test_the_docstring_of_the_group_is_true() -> None:
    import doctest

    import rota.testing.group

    found = doctest.testmod(rota.testing.group, extraglobs={"rota": rota, "Group": Group})
    assert (found.failed, found.attempted > 0) == (0, True)
