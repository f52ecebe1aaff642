"""Rota's images for the tests in a cluster: built once for each state of the sources, before the tier runs."""

from tests.support.cluster import images, prepared
from tests.support.cluster.images import Image

# The operator, what it needs, and the applications of tests, which run in the image of the command line.
PARTS = ("operator", "coordinator", "sidecar", "cli")
EXAMPLE = "exactly-once"


def prepare() -> dict[str, Image]:
    """Build the images that are missing, and the store of nodes that have all of them."""
    parts = {name: images.part(name) for name in PARTS} | {EXAMPLE: images.example(EXAMPLE)}
    prepared.prepare(*parts.values())
    return parts
