"""The page of errors matches the errors, and no message depends on a docstring."""

import subprocess
import sys

from rota import errors
from scripts.generate_error_reference import FILE, kinds, text_of, written


def test_the_page_matches_the_errors() -> None:
    assert FILE.read_text() == written(), "run scripts/generate_error_reference.py"


def test_every_error_has_a_text_of_its_own() -> None:
    texts = [text_of(kind) for kind in kinds()]
    assert all(texts)
    assert len(set(texts)) == len(texts)


def test_messages_are_complete_where_docstrings_are_removed() -> None:
    code = (
        "from rota import errors; print(errors.RotaError.__init__.__doc__, errors.error_of({}, 'orders[0]'))"
    )
    for kind in (errors.OffsetOutOfRange, errors.ProducerFenced):
        done = subprocess.run(
            [sys.executable, "-OO", "-c", code.format(kind.code)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == f"None orders[0]: {kind.message} ({kind.name})"


def test_a_code_of_a_newer_server_is_named() -> None:
    assert str(errors.error_of(9_999, "orders")) == (
        "orders: error code 9999 is unknown to this version of rota; upgrade it"
    )
