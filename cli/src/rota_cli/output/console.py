"""Standard output and standard error of a command, and on a terminal how far long work is."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def print_out(text: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_err(text: str) -> None:
    """To standard error: for whoever looks, and not for the next program in a pipe."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def discard_stdout() -> None:
    """Whoever read our output has gone: nothing more is to be written, not even when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress_counter(what: str) -> Iterator[Callable[[int], None]]:
    """A function to be told how much is done so far; what it shows goes away with the end of the block."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    # For terminals only, and not quick to load.
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done: progress.update(task, completed=done)
