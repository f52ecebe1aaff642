"""A group in memory, of two partitions."""

from collections.abc import Iterator

import pytest

from rota.testing import Group


@pytest.fixture
def group() -> Iterator[Group]:
    with Group(partitions=2) as made:
        yield made
