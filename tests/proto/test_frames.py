"""Frames: what is encoded is read again, however it is split on the way."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_proto.sidecar.frames import END, HEADER, MESSAGE, Frame, FrameReader, FrameTooLarge

LIMIT = 50
FRAMES = st.lists(st.builds(Frame, st.sampled_from([MESSAGE, END, 7]), st.binary(max_size=LIMIT)), max_size=8)


@given(FRAMES, st.lists(st.integers(min_value=1, max_value=20), min_size=1))
def test_frames_are_read_in_order_however_the_bytes_come(
    frames: Sequence[Frame], sizes: Sequence[int]
) -> None:
    data = b"".join(frame.encode() for frame in frames)
    reader = FrameReader(LIMIT)
    found: list[Frame] = []
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        found += reader.feed(data[:size])
        data, turn = data[size:], turn + 1
    assert found == frames


def test_a_frame_is_given_with_its_last_byte() -> None:
    data = Frame(MESSAGE, b"ab").encode()
    reader = FrameReader(LIMIT)
    assert [reader.feed(data[at : at + 1]) for at in range(len(data))] == [[]] * 6 + [[Frame(MESSAGE, b"ab")]]


def test_a_frame_that_is_too_large_is_refused_by_its_header() -> None:
    reader = FrameReader(LIMIT)
    assert reader.feed(Frame(MESSAGE, b"x" * LIMIT).encode()) == [Frame(MESSAGE, b"x" * LIMIT)]
    with pytest.raises(FrameTooLarge, match="a frame has 51 bytes, the limit is 50"):
        reader.feed(HEADER.pack(MESSAGE, LIMIT + 1))
