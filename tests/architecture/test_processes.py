"""No test forgets a process that it has started: one that fails half-way would fail the test that runs when it is collected."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.tree import REPO, files

# They give theirs an owner, or write down who it is and leave it running on purpose.
OWNED = {
    "tests/support/processes.py",
    "tests/support/sidecar.py",
    "tests/support/cluster/detached.py",
    "tests/support/cluster/kubectl_server.py",
    "tests/operator/local/test_table.py",
}


def forgettable(source: str) -> Iterator[int]:
    """The lines that make a Popen outside of the head of a `with`."""
    tree = ast.parse(source)
    heads = {
        id(item.context_expr) for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "Popen"
            and id(node) not in heads
        ):
            yield node.lineno


def test_whoever_starts_a_process_waits_for_its_end() -> None:
    offenders = [
        f"{name}:{line}: use tests.support.processes.Process, or `with subprocess.Popen(…)`"
        for path in files()
        if path.suffix == ".py"
        and (name := str(path.relative_to(REPO))).startswith("tests/")
        and name not in OWNED
        for line in forgettable(path.read_text())
    ]
    assert offenders == []


def test_a_popen_that_is_only_kept_is_found() -> None:
    assert list(forgettable("import subprocess\nchild = subprocess.Popen([])\n")) == [2]
    assert list(forgettable("with subprocess.Popen([]) as child:\n    pass\n")) == []
    assert all((REPO / Path(name)).exists() for name in OWNED)
