"""
No module of the house imports itself over others: neither when it is loaded, nor for its types, nor inside a function.

An edge is an import statement anywhere in a module, also under `TYPE_CHECKING`. `from package import name` is an edge to the
module `package.name` where there is one, else to `package`. Loading a module also runs the `__init__` of its packages; that is
no edge: such an `__init__` imports nothing when it is loaded, or re-exports what stands below it.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.tree import REPO, written_python

Graph = Mapping[str, set[str]]


def module_of(path: Path) -> str:
    """The dotted name of a file below a part's `src`."""
    parts = path.relative_to(REPO).with_suffix("").parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(module: str, source: str, *, is_package: bool) -> Iterator[str]:
    """Every dotted name that a module imports; both `a.b` and `a.b.c` of `from a.b import c`."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def graph_of(sources: Mapping[str, tuple[str, bool]]) -> Graph:
    """Edges between the given modules; the source of each comes with whether it is a package's `__init__`."""
    graph: dict[str, set[str]] = {module: set() for module in sources}
    for module, (source, is_package) in sources.items():
        for name in imported(module, source, is_package=is_package):
            target = name if name in sources else name.rpartition(".")[0]
            if target in sources and target != module:
                graph[module].add(target)
    return graph


def reached_from(module: str, graph: Graph) -> set[str]:
    """The modules that it imports, and those that these import, and so on."""
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def circles(graph: Graph) -> set[frozenset[str]]:
    """The strongly connected components of more than one module: each of a circle's modules reaches all of them."""
    reached = {module: reached_from(module, graph) for module in graph}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }


def house() -> Graph:
    """All modules of all parts."""
    paths = [path for path in written_python() if path.relative_to(REPO).parts[1] == "src"]
    return graph_of({module_of(path): (path.read_text(), path.name == "__init__.py") for path in paths})


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = sorted(" <-> ".join(sorted(circle)) for circle in circles(house()))
    assert found == [], (
        "move what both need into a module below them, or name it as a Protocol where it is used"
    )


def test_every_part_is_looked_at() -> None:
    packages = {module.split(".")[0] for module in house()}
    assert packages >= {"rota", "rota_cli", "rota_coordinator", "rota_operator", "rota_sidecar"}


def test_imports_for_types_and_inside_functions_close_a_circle() -> None:
    sources = {
        "p": ("", True),
        "p.a": ("if TYPE_CHECKING:\n    from p.b import B", False),
        "p.b": ("def f():\n    from p import c", False),
        "p.c": ("from .a import A", False),
        "p.d": ("import p.a", False),
    }
    assert circles(graph_of(sources)) == {frozenset({"p.a", "p.b", "p.c"})}


def test_a_package_that_re_exports_closes_none_with_what_stands_below_it() -> None:
    sources = {
        "p": ("from p.a import A\nfrom p.b import B", True),
        "p.a": ("from p import b", False),
        "p.b": ("", False),
    }
    assert circles(graph_of(sources)) == set()
