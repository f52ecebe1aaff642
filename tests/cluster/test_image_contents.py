"""Each image carries its own part with that part's dependencies, and nothing else; read from the archives, without a cluster."""

import json
import re
import tarfile
from collections.abc import Iterator

import pytest

from scripts import pins
from tests.support.cluster import images

pytestmark = pytest.mark.cluster

MIB = 2**20
INSTALLED = re.compile(r"opt/rota/lib/python3\.\d+/site-packages/([^/]+)-[^-/]+\.dist-info/METADATA")
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


def layers(image: images.Image) -> Iterator[tuple[str, int]]:
    """Yield each file of an image with its size, layer by layer."""
    with tarfile.open(image.archive) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        for name in json.load(manifest)[0]["Layers"]:
            with archive.extractfile(name) as stored, tarfile.open(fileobj=stored) as layer:  # type: ignore[union-attr]
                yield from ((member.name.removeprefix("./"), member.size) for member in layer)


@pytest.mark.parametrize("part", ABSENT)
def test_an_image_has_the_distributions_of_its_part_alone(part: str, report: list[str]) -> None:
    found: set[str] = set()
    total = own = 0
    files = set()
    for path, size in layers(images.example(EXAMPLE) if part == "sdk" else images.part(part)):
        files.add(path)
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
    assert {each for each in files if each.startswith("app/")} == (
        {"app/biller.py", "app/till.py"} if part == "sdk" else set()
    )
    report.append(f"image of {part}: {total // MIB} MiB, {own // MIB} of them Rota and its dependencies")
