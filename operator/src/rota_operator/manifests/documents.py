"""YAML becomes values, each with its place: nothing is executed, and nothing means two things."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Never

import yaml

Path = tuple[str | int, ...]
# Far more than a manifest has; an anchor that stands for itself many times over could be any size.
VALUES_MAX = 100_000
DEPTH_MAX = 50
SCALARS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}


class Wrong(NamedTuple):
    """One thing that is wrong, and where."""

    file: str
    line: int
    # Begins with the field, where it is about one.
    sentence: str

    @property
    def whole(self) -> str:
        """As it is said, and as editors jump to it; without the terminal's own commands, which names could hold."""
        said = f"{self.file}:{self.line}: {self.sentence}"
        return "".join(each if each.isprintable() else _escaped(each) for each in said)


class InvalidManifest(Exception):
    """Manifests that are refused whole."""

    def __init__(self, wrong: Sequence[Wrong]) -> None:
        super().__init__("\n".join(each.whole for each in wrong))
        self.wrong = wrong


@dataclass(frozen=True)
class Document:
    """One resource as it was written."""

    file: str
    value: Mapping[str, Any]
    # Of every value in it, beginning with 1.
    lines: Mapping[Path, int]

    @property
    def kind(self) -> str:
        """Empty where none is said."""
        return str(self.value.get("kind", ""))

    def wrong(self, path: Path, sentence: str) -> Wrong:
        """Something is wrong there, or with what is missing there."""
        place = path
        while place not in self.lines:
            place = place[:-1]
        return Wrong(self.file, self.lines[place], sentence)


def documents(file: str, text: str) -> list[Document]:
    """All in one file; empty ones are left out, and a List is what is in it. Raises InvalidManifest."""
    found: list[Document] = []
    try:
        for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
            if not _is_empty(node):
                found += _items(_document(file, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        line = 1 if mark is None else mark.line + 1
        raise InvalidManifest([Wrong(file, line, f"the YAML cannot be read ({said}): correct it")]) from None
    except yaml.YAMLError as error:
        raise InvalidManifest([Wrong(file, 1, f"the YAML cannot be read ({error}): correct it")]) from None
    return found


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _document(file: str, node: yaml.Node) -> Document:
    lines: dict[Path, int] = {}
    value = _Reader(file, lines).value(node, ())
    if not isinstance(value, dict):
        raise InvalidManifest(
            [Wrong(file, _line(node), "this is no resource: begin with apiVersion and kind")]
        )
    return Document(file, value, lines)


def _items(document: Document) -> Iterator[Document]:
    items = document.value.get("items")
    if document.kind != "List" or not isinstance(items, list):
        yield document
        return
    for number, item in enumerate(items):
        begin: Path = ("items", number)
        if not isinstance(item, dict):
            raise InvalidManifest([document.wrong(begin, f"items[{number}] is no resource: leave it out")])
        size = len(begin)
        lines = {path[size:]: line for path, line in document.lines.items() if path[:size] == begin}
        yield Document(document.file, item, lines)


class _Reader:
    """Of one document."""

    def __init__(self, file: str, lines: dict[Path, int]) -> None:
        self._file = file
        self._lines = lines
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401  whatever was written
        """What the node says."""
        self._lines[path] = _line(node)
        if len(self._lines) > VALUES_MAX or len(path) > DEPTH_MAX:
            self._refuse(node, f"the document has more than {VALUES_MAX} values, or is too deep: split it")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, number)) for number, each in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in node.value:
            key = self._scalar(name)
            if not isinstance(key, str):
                self._refuse(name, f"the name {name.value!r} is no text: put it in quotes")
            if key in found:
                self._refuse(name, f"{key} is there twice: leave one of them")
            found[key] = self.value(value, (*path, key))
            # What is wrong with a field is looked for where its name stands.
            self._lines[*path, key] = _line(name)
        return found

    def _scalar(self, node: yaml.Node) -> Any:  # noqa: ANN401  as above
        if node.tag not in SCALARS:
            self._refuse(node, f"the tag {node.tag} has no meaning here: leave it out")
        if node.tag.endswith(":timestamp"):
            # To Kubernetes that is a text.
            return node.value
        try:
            return self._scalars.construct_object(node)
        except ValueError as error:
            self._refuse(node, f"{node.value} is no value ({error}): put it in quotes")

    def _refuse(self, node: yaml.Node, sentence: str) -> Never:
        raise InvalidManifest([Wrong(self._file, _line(node), sentence)])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1
