"""Headers of `rota produce`, as text of a flag."""

import pytest

from rota_cli.commands.produce import parse_header
from rota_cli.errors import WrongUsage


@pytest.mark.parametrize(
    ("text", "header"),
    [("a=b", ("a", b"b")), ("a==", ("a", b"=")), ("a=", ("a", b"")), ("é=ü", ("é", "ü".encode()))],
)
def test_a_header_is_split_at_its_first_separator(text: str, header: tuple[str, bytes]) -> None:
    assert parse_header(text) == header


@pytest.mark.parametrize("text", ["", "a", "=b", "="])
def test_a_header_without_key_or_separator_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="expected KEY=VALUE"):
        parse_header(text)
