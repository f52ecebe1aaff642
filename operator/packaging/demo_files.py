"""
Called when a wheel is built: it takes the orders example along, which is the demo of who has no checkout.

The example is there once, in `examples`, where its tests run it. An editable installation finds it there; an image is built
without it, and has no demo.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"
INSTALLED = "rota_operator/local/orders"


class DemoHook(BuildHookInterface[Any]):
    """Of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before it is built."""
        if version != "editable" and EXAMPLE.is_dir():
            files = [file for file in EXAMPLE.iterdir() if file.is_file()]
            build_data["force_include"].update({str(file): f"{INSTALLED}/{file.name}" for file in files})
