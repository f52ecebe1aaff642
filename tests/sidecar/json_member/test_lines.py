"""Lines in and out: nothing that others do with a pipe holds up the loop, or grows without an end."""

import asyncio
import os
from collections.abc import Coroutine, Iterator, Sequence

import pytest

from tests.support.json_member.lines import (
    CHUNK_BYTES,
    UNREAD_LINES_MAX,
    LineReader,
    LineWriter,
    OutputStalled,
    split,
)

STORY_S = 20
SILENCE_S = 0.05


def run(story: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(STORY_S):
            await story

    asyncio.run(bounded())


async def is_silent(reader: LineReader) -> bool:
    """Nothing comes for a while; there is no event that says that nothing will."""
    try:
        async with asyncio.timeout(SILENCE_S):
            await reader.next()
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc"], [b"ab"]),
        ([b"\n\n"], [b"", b""]),
        ([b"123456\nok\n"], [None, b"ok"]),
        ([b"12345", b"6789", b"0\nok\n"], [None, b"ok"]),
        ([b"123456\n654321\n"], [None, None]),
        ([b"12345\n"], [b"12345"]),
    ],
)
def test_lines_are_whole_and_those_too_long_are_marked(
    chunks: Sequence[bytes], lines: Sequence[bytes | None]
) -> None:
    assert list(split(iter(chunks), longest=5)) == lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # the test has closed it


def test_what_is_said_comes_in_order_until_the_end(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        reader = LineReader(pipe[0])
        reader.start()
        os.write(pipe[1], b"".join(b"%d\n" % number for number in range(100)))
        os.close(pipe[1])
        assert [await reader.next() for _ in range(100)] == [b"%d" % number for number in range(100)]
        assert await is_silent(reader)

    run(story())


def test_a_reader_ends_with_its_loop_though_lines_still_wait(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        reader = LineReader(pipe[0])
        reader.start()
        os.write(pipe[1], b"a\nb\nc\n")
        assert await reader.next() == b"a"

    run(story())
    os.close(pipe[1])


def test_an_input_that_is_closed_from_the_start_says_nothing(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        os.close(pipe[0])
        reader = LineReader(pipe[0])
        reader.start()
        assert await is_silent(reader)

    run(story())


def put_many(writer: LineWriter, number: int) -> None:
    for _ in range(number):
        writer.put(b"x")


def test_lines_that_nobody_reads_are_refused_in_the_end(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        writer = LineWriter(pipe[1])
        writer.start()
        # A pipe holds 64 KiB, and the thread has one line in hand.
        line = b"x" * CHUNK_BYTES
        for _ in range(UNREAD_LINES_MAX):
            writer.put(line)
        with pytest.raises(OutputStalled, match=f"{UNREAD_LINES_MAX} events wait on standard output"):
            put_many(writer, 3)
        os.close(pipe[0])
        await writer.broken.wait()  # the thread would write into the next test's pipe

    run(story())


def test_all_lines_are_written_before_the_end(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        writer = LineWriter(pipe[1])
        writer.start()
        writer.put(b"a")
        writer.put(b"b")
        writer.close()
        assert os.read(pipe[0], 100) == b"a\nb\n"

    run(story())


def test_a_reader_who_is_gone_is_noticed(pipe: tuple[int, int]) -> None:
    async def story() -> None:
        os.close(pipe[0])
        writer = LineWriter(pipe[1])
        writer.start()
        writer.put(b"a")
        await writer.broken.wait()

    run(story())
