"""Modules that a program loads, in a process that has loaded nothing else."""

import subprocess
import sys


def loaded_modules(program: str) -> set[str]:
    """Run statements; return the names of the modules that are loaded at their end."""
    printed = subprocess.check_output(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sorted(sys.modules))"], text=True
    )
    return set(printed.splitlines()[-1].split())
