"""Standard output, standard error, and a progress counter on terminals."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def print_out(text: str) -> None:
    """Print to standard output and flush."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_err(text: str) -> None:
    """Print to standard error and flush."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def discard_stdout() -> None:
    """Redirect standard output to /dev/null after its reader has closed the pipe, also for the flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress_counter(what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows a count on a terminal; the display is removed at the end of the block."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    # Used on terminals only, and slow to import.
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done: progress.update(task, completed=done)
