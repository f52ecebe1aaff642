"""The `rota` commands of the guides run as printed, and every page with such commands is tested."""

import argparse
import importlib
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_coordinator import options as coordinator_options
from rota_operator.cluster.config import add_flags, config_of, error_in
from rota_sidecar.config.loading import read_sources
from rota_sidecar.config.validation import assignor_problem
from rota_sidecar.membership.strategies import known
from tests.cli.command import Rota
from tests.docs.blocks import DOCS, blocks
from tests.support.coordinator import QUICK, serving
from tests.support.processes import Process

WITHIN_S = 60
PAGES = ("guide/groups.md", "guide/offsets.md")
# By the tests of the quickstart, of the examples, of offsets in files, of Spark's pipelines and of the command line's reference.
RUN_ELSEWHERE = (
    "quickstart.md",
    "guide/laptop.md",
    "guide/moving.md",
    "guide/spark-pipelines.md",
    "reference/cli.md",
)


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rota]:
    """Beside a server that has what the guides speak of."""
    folder = tmp_path_factory.mktemp("guides")
    with serving(folder, QUICK) as coordinator:
        rota = Rota(f"rota://{coordinator.address}", folder)
        assert rota("topics", "create", "orders").code == 0
        assert rota("produce", "orders", stdin="one\ntwo\n").code == 0
        reset = ("reset", "shop.orders-enricher", "--topic", "orders", "--to-latest", "--execute")
        assert rota("groups", *reset).code == 0
        yield rota


def environment(rota: Rota) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return rota.environment({"PATH": path})


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_guide_does_what_it_says(rota: Rota, page: str) -> None:
    shown = [block for block in blocks(page) if block.language == "sh"]
    assert shown
    for block in shown:
        if block.info == "endless":
            ends_with_ctrl_c(rota, block.text)
            continue
        done = subprocess.run(
            ["/bin/sh", "-ec", block.text],
            capture_output=True,
            text=True,
            cwd=rota.folder,
            env=environment(rota),
            timeout=WITHIN_S,
        )
        assert (done.returncode, bool(done.stdout)) == (0, True), (page, block.text, done.stderr)


def ends_with_ctrl_c(rota: Rota, command: str) -> None:
    log = rota.folder / "endless.log"
    process = Process.start(command, shlex.split(command), log=log, env=environment(rota))
    try:
        process.wait_until(lambda: log.read_text() != "", within_s=WITHIN_S)
    finally:
        process.stop(first=signal.SIGINT)
    assert (process.exit_code, "Traceback" in log.read_text()) == (0, False)


def parts_in_the_docs() -> Iterator[tuple[str, str]]:
    """The commands that start a part by itself, each with its page."""
    for page in sorted(DOCS.rglob("*.md")):
        name = str(page.relative_to(DOCS))
        for block in blocks(name):
            text = block.text.replace("\\\n", " ")
            yield from ((name, line) for line in text.splitlines() if line.startswith("python -m rota_"))


@pytest.mark.parametrize(("page", "command"), list(parts_in_the_docs()))
def test_what_starts_a_part_is_taken_by_it(page: str, command: str) -> None:
    """Their addresses are examples; that they run is what all tests of these parts show."""
    _, _, module, *arguments = shlex.split(command, comments=True)
    if module == "rota_coordinator":
        assert coordinator_options.option_error(coordinator_options.parse(arguments)) == ""
    elif module == "rota_operator":
        parser = argparse.ArgumentParser()
        add_flags(parser.add_subparsers().add_parser("cluster"))
        assert error_in(config_of(parser.parse_args(arguments), own_namespace="", host_name="host")) == ""
    elif module.startswith("rota_spark.pipelines."):
        importlib.import_module(module).arguments_parser().parse_args(arguments)
    else:
        assert module == "rota_sidecar"
        assert assignor_problem(read_sources(arguments, {}).config().assignors, known(100)) == ""


def test_no_page_shows_commands_of_rota_that_no_test_runs() -> None:
    showing = {
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        for block in blocks(str(page.relative_to(DOCS)))
        if any(re.match(r"(\$ )?rota ", command) for command in block.commands)
    }
    assert showing == {*PAGES, *RUN_ELSEWHERE}
