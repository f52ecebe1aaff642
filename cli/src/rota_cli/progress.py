"""How far long work is: on a terminal only, on standard error, so that no pipe ever sees it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
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
