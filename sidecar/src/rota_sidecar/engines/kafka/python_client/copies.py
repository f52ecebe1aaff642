"""Back references of LZ77 formats: a run of bytes is copied from the decompressed bytes before it. Used by `snappy.py` and `lz4.py`."""


class MalformedData(ValueError):
    """Compressed data or a record batch that cannot be decoded; the message says why, and is part of a sentence about the batch."""


def append_copy(found: bytearray, distance: int, length: int) -> None:
    """
    Append `length` bytes that begin `distance` bytes before the end; with a longer run than distance they repeat.

    Raises MalformedData for a distance of 0, or one before the start.
    """
    start = len(found) - distance
    if start < 0 or distance == 0:
        raise MalformedData("its compressed data refer to bytes before their start")
    if length <= distance:
        found += found[start : start + length]
        return
    run = found[start:]
    found += (run * (length // distance + 1))[:length]
