"""Headers of dead letters and of markers: what is ours is understood, and nothing else is believed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.records import Headers, Record, TopicPartition
from rota_cli.commands.dead_letter_headers import (
    Origin,
    dead_letter_of,
    marked_offsets,
    marker_of,
    own_headers,
)
from rota_cli.errors import Failure
from tests.cli.commands.dead_letter_fakes import dead_letter_headers


def record(headers: Headers, offset: int = 100) -> Record:
    return Record("orders-dlq", 0, offset, 7, None, b"value", headers)


def changed(name: str, value: bytes | None) -> Headers:
    """The headers of a dead letter, with one that is changed."""
    return [(each, value if each == f"rota-dlq-{name}" else was) for each, was in dead_letter_headers()]


def without(name: str) -> Headers:
    return [header for header in dead_letter_headers() if header[0] != f"rota-dlq-{name}"]


def test_the_origin_and_the_records_own_headers_are_taken_apart() -> None:
    headers = dead_letter_headers("orders", 3, 41, reason="too late")
    found = dead_letter_of(record(headers))
    assert found.origin == Origin(TopicPartition("orders", 3), 41, "billing", "too late", 6)
    assert (found.problem, found.timestamp_ms) == ("", 7)
    assert own_headers(headers) == [("kind", b"new")]


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ([], "the header rota-dlq-topic is missing"),
        (without("offset"), "the header rota-dlq-offset is missing"),
        (without("group"), "the header rota-dlq-group is missing"),
        (changed("reason", None), "the header rota-dlq-reason is missing"),
        (changed("topic", b""), "the header rota-dlq-topic is empty"),
        (changed("topic", b"\xff"), "the header rota-dlq-topic is not UTF-8 text"),
        (changed("partition", b"-1"), "the header rota-dlq-partition is not a number from 0 to 2147483647"),
        (changed("partition", b"2147483648"), "the header rota-dlq-partition is not a number from 0 to"),
        (changed("offset", "١".encode()), "the header rota-dlq-offset is not a number from 0 to"),
        (changed("offset", b"9" * 5_000), "the header rota-dlq-offset is not a number from 0 to"),
        ([*dead_letter_headers(), ("rota-dlq-topic", b"bank")], "the header rota-dlq-topic is there twice"),
    ],
)
def test_headers_of_another_form_are_a_problem_that_names_the_header(headers: Headers, problem: str) -> None:
    found = dead_letter_of(record(headers))
    assert found.origin is None
    assert found.problem.startswith(f"not a dead letter of Rota: {problem}")


def test_a_batch_that_cannot_be_decoded_is_not_to_be_replayed() -> None:
    damaged = [("rota-batch-codec", b"9"), *dead_letter_headers(deliveries=0)]
    assert dead_letter_of(record(damaged)).problem == "it holds a batch that cannot be decoded"
    # A record may have such a header of its own.
    assert not dead_letter_of(record([("rota-batch-codec", b"9"), *dead_letter_headers()])).problem


def test_a_dead_letter_whose_origin_is_its_own_topic_is_not_to_be_replayed() -> None:
    assert dead_letter_of(record(dead_letter_headers("orders-dlq"))).problem == (
        "its origin is the dead-letter topic itself"
    )


@given(st.sets(st.integers(0, 99), min_size=1))
def test_a_marker_names_what_it_was_made_of(offsets: set[int]) -> None:
    ranges = marked_offsets(record(marker_of(offsets)))
    assert ranges is not None
    assert [offset for each in ranges for offset in each] == sorted(offsets)


@pytest.mark.parametrize(
    "text", [b"", b"1,", b"2-1", b"-1", b"a", b"100", b"1-100", b"1;2", b"\xff", b"9" * 5_000, None]
)
def test_a_marker_of_unknown_form_ends_the_command(text: bytes | None) -> None:
    with pytest.raises(Failure, match=r"^orders-dlq\[0\] at offset 100: the header rota-dlq-replayed has an"):
        marked_offsets(record([("rota-dlq-replayed", text)]))


def test_a_dead_letter_is_not_a_marker() -> None:
    assert marked_offsets(record(dead_letter_headers())) is None


@given(st.lists(st.tuples(st.sampled_from([n for n, _ in dead_letter_headers()]), st.none() | st.binary())))
def test_whatever_the_headers_are_it_is_a_dead_letter_with_an_origin_or_with_a_problem(headers: Any) -> None:  # noqa: ANN401  any headers
    found = dead_letter_of(record(headers))
    assert bool(found.origin) or bool(found.problem)
