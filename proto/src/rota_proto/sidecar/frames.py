"""
Frames in which the SDK and the sidecar exchange the messages of Deliver on a unix socket, without gRPC. Pure.

A frame is one byte with its kind, four bytes with the length of its content, the highest byte first, and the content: a message of
`sidecar.proto`.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

HEADER = struct.Struct(">BI")
# The content is a DeliverRequest or DeliverResponse.
MESSAGE = 0
# The content is a DeliverEnd, after which this side sends nothing.
END = 1


class Frame(NamedTuple):
    """Kind and content of a frame."""

    kind: int
    content: bytes

    def encode(self) -> bytes:
        """Return its bytes."""
        return HEADER.pack(self.kind, len(self.content)) + self.content


class FrameTooLarge(ValueError):
    """A frame announces more bytes than it may have."""


class FrameReader:
    """Splits received bytes into frames. Invariant: it holds less than one frame of at most `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()

    def feed(self, data: bytes) -> Sequence[Frame]:
        """Return the frames that are complete with this data. Raises FrameTooLarge, after which no more can be read."""
        held = self._held
        held += data
        frames: list[Frame] = []
        at = 0
        with memoryview(held) as view:
            while len(held) - at >= HEADER.size:
                kind, size = HEADER.unpack_from(view, at)
                if size > self._bytes_max:
                    raise FrameTooLarge(f"a frame has {size:,} bytes, the limit is {self._bytes_max:,}")
                begin = at + HEADER.size
                if begin + size > len(held):
                    break
                at = begin + size
                frames.append(Frame(kind, bytes(view[begin:at])))
        del held[:at]
        return frames
