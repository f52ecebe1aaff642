"""The checkout as tests see it: its files, without what git ignores, and the path on which Python finds its packages."""

import os
import subprocess
from pathlib import Path

REPO = Path(__file__).parents[2]
MEMBERS = ("cli", "coordinator", "operator", "proto", "sdk", "service", "sidecar", "spark_apps")


def files(*patterns: str, repo: Path = REPO) -> list[Path]:
    """The tracked and the new files that match, by absolute path; all of them without a pattern."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns],
        cwd=repo,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = (repo / name for name in listed.split("\0") if name)
    return sorted(path for path in set(found) if path.is_file())


def python_path() -> str:
    """PYTHONPATH of this process with the checkout first: for programs that do not inherit it, or start in another folder."""
    return os.pathsep.join(filter(None, (str(REPO), os.environ.get("PYTHONPATH"))))


def written_python() -> list[Path]:
    """Python files that were written by hand, as opposed to generated ones."""
    return [path for path in files("*.py") if "_pb2" not in path.name]
