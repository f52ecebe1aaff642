"""
Read the sidecar's command line, declared in `flags`, as text by flag. `loading` reads the values and checks them.

argparse prints the help, the version and errors of usage (exit code 2), and exits then.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from typing_extensions import override

from rota_sidecar.config.flag_types import Flag, Properties, Switch
from rota_sidecar.config.flags import FLAGS

DESCRIPTION = (
    "Joins a consumer group and delivers its records to the application beside it. Each flag can be given as a variable "
    "too: ROTA_GROUP_ID for --group-id."
)


class ShowVersion(argparse.Action):
    """Print the version and exit. The version is read only then: reading it takes milliseconds, which each start would spend."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.prog} {version('rota-sidecar')}\n")
        parser.exit()


def parse_arguments(arguments: Sequence[str]) -> Mapping[Flag[Any], str | bool | Sequence[str]]:
    """Return the flags that are given, with their text; a switch with its boolean, properties with the text of each."""
    parser = argparse.ArgumentParser(
        prog="rota-sidecar", description=DESCRIPTION, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    parser.add_argument(
        "--version", action=ShowVersion, nargs=0, help="show program's version number and exit"
    )
    for flag in FLAGS:
        if isinstance(flag.type, Switch):
            parser.add_argument(flag.option, action=argparse.BooleanOptionalAction, help=help_of(flag))
        elif isinstance(flag.type, Properties):
            parser.add_argument(flag.option, action="append", metavar=flag.type.metavar, help=help_of(flag))
        else:
            parser.add_argument(flag.option, metavar=flag.type.metavar, help=help_of(flag))
    given = vars(parser.parse_args(arguments))
    dests = {flag.name.replace("-", "_"): flag for flag in FLAGS}
    return {dests[dest]: value for dest, value in given.items()}


def help_of(flag: Flag[Any]) -> str:
    """Return the help of a flag, with its default."""
    default = flag.derived or flag.shown_default
    return (flag.help + (f" (default: {default})" if default else "")).replace("%", "%%")
