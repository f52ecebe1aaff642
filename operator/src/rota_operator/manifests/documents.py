"""
Parses YAML into values with their lines: bounded in size and depth, without custom tags, duplicate keys or code execution.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Never

import yaml
from typing_extensions import override

Path = tuple[str | int, ...]
# Limit of values in a file, far above real manifests; without it, nested aliases could expand without bound.
BYTES_MAX = 1 << 20
VALUES_MAX = 100_000
DEPTH_MAX = 50
NUMBER_LENGTH_MAX = 64
SHOWN_LENGTH_MAX = 80
SCALARS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}
COLLECTIONS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
TOO_DEEP = f"the document is nested more than {DEPTH_MAX} levels deep"
TOO_MANY = f"the file has more than {VALUES_MAX} values, counting repetitions by aliases; split it"


class Diagnostic(NamedTuple):
    """An error in a manifest, with file and line."""

    file: str
    line: int
    # Begins with the field's path, if the error is about a field.
    message: str

    @property
    def whole(self) -> str:
        """FILE:LINE: message, as editors parse it; non-printable characters are escaped."""
        said = f"{self.file}:{self.line}: {self.message}"
        return "".join(each if each.isprintable() else _escaped(each) for each in said)


class InvalidManifest(Exception):
    """The manifests are invalid; none of them is used."""

    def __init__(self, wrong: Sequence[Diagnostic]) -> None:
        super().__init__("\n".join(each.whole for each in wrong))
        self.wrong = wrong


@dataclass(frozen=True)
class Document:
    """One resource as written, with the line of each value."""

    file: str
    value: Mapping[str, Any]
    # Line of every value, counted from 1.
    lines: Mapping[Path, int]

    @property
    def kind(self) -> str:
        """The resource's kind; empty if missing."""
        return str(self.value.get("kind", ""))

    def wrong(self, path: Path, message: str) -> Diagnostic:
        """Return a diagnostic at the path, or at its nearest existing parent."""
        known = path
        while known not in self.lines:
            known = known[:-1]
        return Diagnostic(self.file, self.lines[known], message)


def decode(file: str, data: bytes) -> str:
    """Decode a file as UTF-8; `data` has at most one byte more than allowed. Raises InvalidManifest."""
    if len(data) > BYTES_MAX:
        raise InvalidManifest([Diagnostic(file, 1, f"the file is larger than {BYTES_MAX} bytes; split it")])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidManifest(
            [Diagnostic(file, line, "the file is not valid UTF-8; save it as UTF-8 text")]
        ) from None


def parse_documents(file: str, text: str) -> list[Document]:
    """Parse all documents of a file; empty ones are omitted, a List is expanded. Raises InvalidManifest."""
    found: list[Document] = []
    try:
        # The parser reads the beginning of the text already when it is created.
        composer, reader = _BoundedComposer(file, text), _NodeReader(file)
        while composer.check_node():
            node = composer.get_node()
            if node is not None and not _is_empty(node):
                found += _items(reader.document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        line = 1 if mark is None else mark.line + 1
        raise InvalidManifest([Diagnostic(file, line, f"invalid YAML: {said}")]) from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise InvalidManifest([Diagnostic(file, 1, f"invalid YAML: {said}")]) from None
    return found


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _items(document: Document) -> Iterator[Document]:
    items = document.value.get("items")
    if document.kind != "List" or not isinstance(items, list):
        yield document
        return
    lines: list[dict[Path, int]] = [{} for _ in items]
    for path, line in document.lines.items():
        if path[:1] == ("items",) and len(path) > 1:
            lines[int(path[1])][path[2:]] = line
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidManifest([document.wrong(("items", number), f"items[{number}] must be a resource")])
        yield Document(document.file, item, lines[number])


class _BoundedComposer(yaml.SafeLoader):
    """Composes YAML nodes and stops at the limits, before the parser's recursion exhausts the stack."""

    def __init__(self, file: str, text: str) -> None:
        super().__init__(text)
        self._file = file
        self._depth = 0
        self._nodes = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._nodes += 1
        self._depth += 1
        if self._depth > DEPTH_MAX or self._nodes > VALUES_MAX:
            raise InvalidManifest(
                [Diagnostic(self._file, self.line + 1, TOO_DEEP if self._depth > DEPTH_MAX else TOO_MANY)]
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _NodeReader:
    """Converts the nodes of one file to values."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: dict[Path, int] = {}
        self._values = 0
        self._scalars = yaml.SafeLoader("")

    def document(self, node: yaml.Node) -> Document:
        """Convert a root node."""
        self._lines = {}
        value = self._value(node, ())
        if not isinstance(value, dict):
            self._refuse(node, "the document must be a resource with apiVersion and kind")
        return Document(self._file, value, self._lines)

    def _value(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401  whatever was written
        """Convert a node, recursively."""
        self._lines[path] = _line(node)
        self._values += 1
        if len(path) > DEPTH_MAX or self._values > VALUES_MAX:
            self._refuse(node, TOO_DEEP if len(path) > DEPTH_MAX else TOO_MANY)
        if isinstance(node, yaml.CollectionNode) and node.tag not in COLLECTIONS:
            self._refuse(node, f"unsupported tag {node.tag}; remove it")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(each, (*path, number)) for number, each in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in node.value:
            key = self._scalar(name)
            if not isinstance(key, str):
                self._refuse(name, f"the key {name.value!r} must be a string; put it in quotes")
            if key in found:
                self._refuse(name, f"duplicate key {key}; remove one")
            found[key] = self._value(value, (*path, key))
            # An error in a field is reported on the line of its name.
            self._lines[*path, key] = _line(name)
        return found

    def _scalar(self, node: yaml.Node) -> Any:  # noqa: ANN401  as above
        if node.tag not in SCALARS:
            self._refuse(node, f"unsupported tag {node.tag}; remove it")
        if node.tag.endswith(":timestamp"):
            # Kubernetes takes it as a string.
            return node.value
        if node.tag in NUMBERS and len(node.value) > NUMBER_LENGTH_MAX:
            # Parsing a sexagesimal number takes quadratic time.
            self._refuse(
                node,
                f"the number has more than {NUMBER_LENGTH_MAX} characters; put it in quotes if it is text",
            )
        try:
            return self._scalars.construct_object(node)
        except (ValueError, LookupError):
            # The tag and the text contradict each other.
            kind = node.tag.rpartition(":")[2]
            self._refuse(node, f"{_shown(node.value)} is not a valid {kind}; put it in quotes if it is text")

    def _refuse(self, node: yaml.Node, message: str) -> Never:
        raise InvalidManifest([Diagnostic(self._file, _line(node), message)])


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1
