"""The page about moving shows the diffs of the applications in tests/sdk/migration, as they are."""

import pytest

from tests.docs.blocks import blocks
from tests.sdk.migration.changes import MIGRATIONS


@pytest.mark.parametrize("client", MIGRATIONS)
def test_the_diff_is_that_of_the_files(client: str) -> None:
    (shown,) = (block.text for block in blocks("guide/moving.md") if block.info == f"changes={client}")
    assert shown == MIGRATIONS[client].difference()
