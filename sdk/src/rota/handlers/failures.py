"""The line that is logged when a handler raises: the exception, and the frames of the application."""

import traceback
from pathlib import Path
from types import TracebackType

PACKAGE = str(Path(__file__).parent.parent)


def line_of(error: BaseException) -> str:
    """
    The exception and the frames outside of this package, outermost first, as one line.

    >>> line_of(ValueError("no price"))
    'ValueError: no price'
    """
    frames = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames_of(error.__traceback__)]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{said} ({', '.join(frames)})" if frames else said


def frames_of(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Those of the application and of the libraries that it calls."""
    frames = traceback.StackSummary.extract(traceback.walk_tb(trace), lookup_lines=False)
    return [frame for frame in frames if not Path(frame.filename).is_relative_to(PACKAGE)]
