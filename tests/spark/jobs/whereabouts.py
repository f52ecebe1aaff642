"""A module that is shipped to executors with `--py-files`, for the job beside it."""

from pathlib import Path


def worker() -> str:
    """The name of the worker that runs this: an executor's folder is `<worker>/<application>/<executor>`."""
    return Path.cwd().parents[1].name
