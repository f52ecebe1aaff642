"""
Garbage collection while tests run: what is loaded with the tests stays until the end, so collections leave it out.

Measured: 4,905 unit tests took 101 s of processor time instead of 112.
"""

import gc


def pytest_configure() -> None:
    """Do not collect while modules are loaded: almost nothing of them becomes garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect what tests leave behind, among what has come since."""
    gc.collect()
    gc.freeze()
    gc.enable()
