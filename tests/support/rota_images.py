"""Rota's images for the tests in a cluster: built once for each state of the sources, before the tier runs."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.support.cluster import images, prepared
from tests.support.cluster.images import Image

# The operator, what it needs, and the applications of tests, which run in the image of the command line.
PARTS = ("operator", "coordinator", "sidecar", "cli")
EXAMPLE = "exactly-once"
# A build waits for packages half of its time.
BUILDS_AT_A_TIME = 2


def prepare() -> dict[str, Image]:
    """Build the images that are missing, and the store of nodes that have all of them."""
    builds: dict[str, Callable[[], Image]] = {name: partial(images.part, name) for name in PARTS}
    builds[EXAMPLE] = partial(images.example, EXAMPLE)
    with ThreadPoolExecutor(BUILDS_AT_A_TIME) as pool:
        found = dict(zip(builds, pool.map(lambda build: build(), builds.values()), strict=True))
    prepared.prepare(*found.values())
    return found
