"""A manifest that would take all memory, all time or the stack is refused in one sentence, with its file and the limit."""

from pathlib import Path

import pytest

from rota_operator.local.runner import load
from rota_operator.manifests.documents import BYTES_MAX, DEPTH_MAX, VALUES_MAX, InvalidManifest

DEEP = f"nested more than {DEPTH_MAX} levels deep"
MANY = f"more than {VALUES_MAX} values, counting repetitions by aliases; split it"
LARGE = f"larger than {BYTES_MAX} bytes; split it"
NUMBER = "characters; put it in quotes if it is text"
LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
)
# Each document of these has a fifth of what one file may have.
FIFTH = "a: &a [" + ", ".join(["x"] * 100) + "]\nb: [" + ", ".join(["*a"] * (VALUES_MAX // 500)) + "]\n"
BOMBS = {
    "lists in lists": ("[" * 10_000, DEEP),
    "lists in lists that end": (f"a: {'[' * 10_000}{']' * 10_000}", DEEP),
    "as many as there is room for": ("[" * BYTES_MAX, DEEP),
    "mappings in mappings": ("{a: " * 10_000, DEEP),
    "blocks in blocks": ("\n".join(" " * depth + "a:" for depth in range(1_400)), DEEP),
    "dashes": ("- " * 10_000, DEEP),
    "names that are names": ("? " * 10_000, DEEP),
    "itself": ("a: &a\n  b: *a\n", DEEP),
    "a billion laughs": (LAUGHS, MANY),
    "a document after the other": ("---\n".join([FIFTH] * 6), MANY),
    "many values": ("- a\n" * (BYTES_MAX // 4), MANY),
    "one byte too many": ("#" * (BYTES_MAX + 1), LARGE),
    "a number to the base of 60": ("a: " + ":".join(["59"] * 300_000), NUMBER),
    "a fraction to the base of 60": ("a: " + ":".join(["59"] * 300_000) + ".5", NUMBER),
    "a long number": ("a: " + "9" * 1_000_000, NUMBER),
}


def refused(file: Path) -> str:
    with pytest.raises(InvalidManifest) as refusal:
        load([file])
    (said,) = str(refusal.value).splitlines()
    return said


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_with_its_file_and_the_limit(name: str, tmp_path: Path) -> None:
    text, limit = BOMBS[name]
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    said = refused(file)
    assert said.startswith(f"{file}:"), said
    assert said.endswith(limit), said


def test_of_a_huge_file_no_more_is_read_than_there_may_be(tmp_path: Path) -> None:
    """A sparse one: were it read whole, it would take a terabyte."""
    file = tmp_path / "bomb.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert refused(file).endswith(LARGE)


def test_each_item_of_a_long_list_is_looked_at_once(tmp_path: Path) -> None:
    """Each is refused for what it is; once the lines of all were searched for each."""
    file = tmp_path / "list.yaml"
    items = VALUES_MAX // 10
    file.write_text("kind: List\nitems:\n" + "- {a: b}\n" * items)
    with pytest.raises(InvalidManifest) as refusal:
        load([file])
    assert [wrong.line for wrong in refusal.value.wrong] == list(range(3, items + 3))


@pytest.mark.parametrize(
    "value",
    [
        "!!bool maybe", "!!int ''", "!!float ''", "!!int x", "!!int [b]", "!!str {a: b}", "!!python/tuple [a]",
        "!!python/object/apply:os.system {args: [id]}", "!!set {a}", "!!omap [a: b]", "!!binary a", "!mine [a]", '"\\ud800"',
    ],
)  # fmt: skip
def test_a_value_that_means_nothing_is_refused_with_a_message(value: str, tmp_path: Path) -> None:
    file = tmp_path / "value.yaml"
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  a: {value}\n", "utf-8")
    assert refused(file).startswith(f"{file}:5: ")
