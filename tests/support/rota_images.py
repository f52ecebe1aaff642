"""Rota's images for the tests in a cluster: built once for each state of the sources, before the tier runs."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.support.cluster import images, prepared
from tests.support.cluster.images import Image
from tests.support.cluster.prepared import Prepared

# The operator, what it needs, and the applications of tests, which run in the image of the command line.
PARTS = ("operator", "coordinator", "sidecar", "cli")
EXAMPLE = "exactly-once"
SPARK_EXAMPLE = "spark-orders"
# A build waits for packages half of its time.
BUILDS_AT_A_TIME = 2


def prepare() -> dict[str, Image]:
    """Build the images that are missing, and the store of nodes that have all of them."""
    found = build()
    nodes_with(found)
    return found


def nodes() -> Prepared:
    """Prepare nodes that have all of them."""
    return nodes_with(build())


def nodes_with(found: dict[str, Image]) -> Prepared:
    """Prepare nodes that have these images; that with Spark is large, and changes less often than the others."""
    others = [image for name, image in found.items() if name != SPARK_EXAMPLE]
    return prepared.prepare(*others, below=(found[SPARK_EXAMPLE],))


def build() -> dict[str, Image]:
    """Build the images that are missing."""
    # The one that takes longest first.
    builds: dict[str, Callable[[], Image]] = {SPARK_EXAMPLE: partial(images.spark_example, SPARK_EXAMPLE)}
    builds |= {name: partial(images.part, name) for name in PARTS}
    builds[EXAMPLE] = partial(images.example, EXAMPLE)
    with ThreadPoolExecutor(BUILDS_AT_A_TIME) as pool:
        return dict(zip(builds, pool.map(lambda build: build(), builds.values()), strict=True))
