"""README says first what works today and what does not, and shows the comparison of docs/why.md as it stands there."""

import itertools
import re

from tests.support.tree import REPO


def first_table(page: str) -> list[str]:
    """The lines of the first table of a page."""
    lines = itertools.dropwhile(lambda line: not line.startswith("|"), (REPO / page).read_text().splitlines())
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines))


def test_the_second_statement_says_what_works_and_what_does_not() -> None:
    _, text, *_ = (REPO / "README.md").read_text().split("\n\n")
    _, second, *_ = re.split(r"(?<=\.)\s", text)
    assert second.startswith("Today ")
    assert "`rota up`" in second
    assert second.endswith("do not work yet.")


def test_the_first_table_is_that_of_the_comparison_with_client_libraries() -> None:
    table = first_table("docs/why.md")
    assert len(table) > 2
    assert first_table("README.md") == table
