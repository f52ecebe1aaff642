"""
Loads parts of an installed package without the package itself: its submodules, but not what it imports to offer it at its top.

kafka-python and the client of Kubernetes load all their clients when one module of theirs is imported. The programs that need some
modules of them call `load_submodules_only` first, at their start.
"""

import importlib
import importlib.util
import sys


def load_submodules_only(name: str) -> None:
    """
    Let the submodules of a package be imported without running the package's own code.

    That code runs as soon as something else of the package is used, as by a strategy that is installed beside Rota and imports it. Nothing
    happens if the package is loaded, or not installed.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, importlib.util.module_from_spec(spec)

    def attribute(wanted: str) -> object:
        """Return an attribute that the package does not have so far."""
        if importlib.util.find_spec(f"{name}.{wanted}") is not None:
            return importlib.import_module(f"{name}.{wanted}")
        if package.__dict__.pop("__getattr__", None) is not None:
            loader.exec_module(package)
        return getattr(package, wanted)

    package.__dict__["__getattr__"] = attribute
    sys.modules[name] = package
