"""The page of errors says what the errors say."""

from scripts.generate_error_reference import FILE, kinds, written


def test_the_page_is_what_the_errors_say() -> None:
    assert FILE.read_text() == written(), "run scripts/generate_error_reference.py"


def test_every_error_has_a_sentence_of_its_own() -> None:
    told = [kind.__doc__ for kind in kinds()]
    assert all(told)
    assert len(set(told)) == len(told)
