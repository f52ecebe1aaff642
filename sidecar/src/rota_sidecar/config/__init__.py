"""
The sidecar's options: flags, their variables, the group's settings, and what is refused before anything starts.

Read by `__main__`, and once more when Fleet brings other settings.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from rota_sidecar.config.delivery_flags import add_serving, derive_serving
from rota_sidecar.config.flags import (
    SASL_PASSWORD,
    SASL_USERNAME,
    add_engine,
    add_group,
    add_process,
    add_security,
    add_times,
    derive_times,
)

SWITCH = {"true": True, "1": True, "false": False, "0": False}
SWITCHES = ("tls", "insecure", "static", "suspend", "ends_with_stdin")


def parse(arguments: Sequence[str], settings: Mapping[str, str] | None = None) -> argparse.Namespace:
    """
    What is asked for: by a flag; else by a variable ROTA_<FLAG>; else by the settings, which name flags; else nothing
    but the default.
    """
    parser = argparse.ArgumentParser(
        prog="rota-sidecar",
        description="The group member beside an application. "
        "Each flag can be given as a variable too: ROTA_GROUP_ID for --group-id.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-sidecar')}")
    for add in (add_engine, add_group, add_times, add_security, add_process, add_serving):
        add(parser)
    for action in parser._actions:  # argparse has no public list of its flags
        flag = action.option_strings[0].removeprefix("--")
        variable = variable_of(flag)
        if action.dest in ("help", "version"):
            continue
        if variable in os.environ:
            action.default = os.environ[variable]
        elif flag in (settings or {}):
            action.default = (settings or {})[flag]
    options = parser.parse_args(arguments)
    for name in SWITCHES:
        value = getattr(options, name)
        setattr(options, name, SWITCH.get(str(value).lower(), value))
    derive_times(options)
    derive_serving(options)
    options.sasl_username = os.environ.get(SASL_USERNAME, "")
    options.sasl_password = os.environ.get(SASL_PASSWORD, "")
    return options


def variable_of(flag: str) -> str:
    """By which a flag can be given too."""
    return "ROTA_" + flag.replace("-", "_").upper()
