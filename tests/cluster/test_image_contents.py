"""Each image carries its own part with that part's dependencies, and nothing else; read from the archives, without a cluster."""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest

from scripts import pins
from tests.support.cluster import images

pytestmark = pytest.mark.cluster

MIB = 2**20
INSTALLED = re.compile(r"opt/rota/lib/python3\.\d+/site-packages/([^/]+)-[^-/]+\.dist-info/METADATA")
# Magic number and flags of a compiled module, and the flag that it is valid whatever the time of its source: PEP 552.
HEAD, UNCHECKED = 8, 1
# A virtual environment comes with them.
OF_ENVIRONMENTS = {"pip", "setuptools"}
OWN = {"proto", "service"}
ALSO = {"cli": {"sdk"}}
# Rather than trusting the pins alone: what must not run there.
ABSENT = {
    "coordinator": {"kubernetes", "kopf", "confluent-kafka", "pyspark"},
    "sidecar": {"kubernetes", "kopf", "pyspark", "psycopg"},
    "operator": {"pyspark", "psycopg"},
    "cli": {"pyspark", "kopf"},
    "sdk": {"pyspark", "kopf", "kubernetes", "psycopg"},
}
# The SDK is no part that runs by itself: its image is an example's.
EXAMPLE = "exactly-once"


class File(NamedTuple):
    """A file of an image."""

    path: str
    size: int
    # The first bytes of a compiled module; empty for other files.
    head: bytes


def files_of(image: images.Image) -> Iterator[File]:
    """Yield each file of an image, layer by layer."""
    with tarfile.open(image.archive) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        for name in json.load(manifest)[0]["Layers"]:
            with archive.extractfile(name) as stored, tarfile.open(fileobj=stored) as layer:  # type: ignore[union-attr]
                for member in layer:
                    content = layer.extractfile(member) if member.name.endswith(".pyc") else None
                    head = b"" if content is None else content.read(HEAD)
                    yield File(member.name.removeprefix("./"), member.size, head)


@pytest.mark.parametrize("part", ABSENT)
def test_an_image_has_the_distributions_of_its_part_alone(part: str, report: list[str]) -> None:
    found: set[str] = set()
    total = own = 0
    files = set()
    compiled: dict[str, int] = {}
    for path, size, head in files_of(images.example(EXAMPLE) if part == "sdk" else images.part(part)):
        files.add(path)
        if head and path.startswith("opt/rota/"):
            compiled[path] = int.from_bytes(head[4:], "little")
        total += size
        own += size if path.startswith("opt/rota/") else 0
        if matched := INSTALLED.fullmatch(path):
            found.add(matched[1].replace("_", "-").lower())
    pinned = [pin for pin in pins.read(pins.FILE.read_text()) if part in pin.sets]
    parts = {pins.PARTS[each] for each in {part, *OWN, *ALSO.get(part, set())}}
    # A marker may leave a pin out on this platform.
    required = {pin.name for pin in pinned if ";" not in pin.requirement}
    assert required | parts <= found
    assert found <= {pin.name for pin in pinned} | parts | OF_ENVIRONMENTS
    assert not found & ABSENT[part]
    assert set(compiled.values()) == {UNCHECKED}
    assert {source_of(each) for each in compiled} == {
        each for each in files if each.startswith("opt/rota/lib/") and each.endswith(".py")
    }
    assert {each for each in files if each.startswith("app/")} == (
        {"app/biller.py", "app/till.py"} if part == "sdk" else set()
    )
    report.append(f"image of {part}: {total // MIB} MiB, {own // MIB} of them Rota and its dependencies")


def source_of(compiled: str) -> str:
    """Return the path of the module that a path below __pycache__ is compiled from."""
    path = PurePosixPath(compiled)
    return str(path.parent.parent / f"{path.name.partition('.')[0]}.py")
