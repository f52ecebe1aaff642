"""Write the tables of docs/reference/cli.md from the commands; `--check` only compares. A test calls it as well."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from rota_cli.commands.connection_flags import PANEL
from rota_cli.errors import MEANINGS
from rota_cli.kubectl_program import kubectl_program
from rota_cli.program import program

FILE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
BEGIN, END = "<!-- generated: {} -->", "<!-- end of {} -->"


def written(text: str) -> str:
    """Return the document with its generated parts up to date."""
    for name, lines in (
        ("commands", commands("rota", program)),
        ("servers", servers()),
        ("exit codes", exit_codes()),
        ("kubectl flags", api_flags()),
        ("kubectl commands", commands("kubectl rota", kubectl_program)),
    ):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{chr(10).join(lines)}\n\n{end}{after}"
    return text


def exit_codes() -> Iterator[str]:
    """Yield the table of exit codes."""
    yield "| code | means |"
    yield "|---|---|"
    for code, meaning in MEANINGS.items():
        yield f"| {code.value} | {meaning} |"


def servers() -> Iterator[str]:
    """Yield the table of flags of all commands that connect to a server."""
    yield "| flag | variable | default | |"
    yield "|---|---|---|---|"
    for flag in every()["topics list"].params:
        if flag.rich_help_panel == PANEL:
            yield f"| {spelt(flag)} | `{flag.envvar}` | {default_of(flag)} | {flag.help} |"


def api_flags() -> Iterator[str]:
    """Yield the table of flags of all commands that ask a Kubernetes API server."""
    yield "| flag | default | |"
    yield "|---|---|---|"
    for flag in every(kubectl_program)["groups describe"].params:
        if flag.rich_help_panel == PANEL:
            yield f"| {spelt(flag)} | {default_of(flag)} | {flag.help} |"


def commands(typed: str, of: typer.Typer) -> Iterator[str]:
    """Yield each command of a program, which people call by the name `typed`, with a table of its flags."""
    for name, command in every(of).items():
        arguments = " ".join(each.metavar for each in command.params if each.param_type_name == "argument")
        yield f"### `{typed} {f'{name} {arguments}'.strip()}`"
        yield ""
        yield command.help
        own = [
            each
            for each in command.params
            if each.param_type_name == "option" and each.rich_help_panel != PANEL and each.name != "help"
        ]
        if own:
            yield ""
            yield "| flag | default | |"
            yield "|---|---|---|"
        for flag in own:
            yield f"| {spelt(flag)} | {default_of(flag)} | {flag.help} |"
        yield ""


def every(of: typer.Typer = program) -> dict[str, Any]:
    """Return the commands of a program by name. The types behind typer's commands are not public."""
    root: Any = typer.main.get_command(of)
    found = {}
    for name, command in sorted(root.commands.items()):
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command
        else:
            found |= {f"{name} {word}": each for word, each in sorted(inner.items())}
    return found


def spelt(flag: Any) -> str:  # noqa: ANN401  see above
    """Return the flag as typed on the command line."""
    return ", ".join(
        f"`{each}`" for each in (*sorted(flag.opts, key=len, reverse=True), *flag.secondary_opts)
    )


def default_of(flag: Any) -> str:  # noqa: ANN401  see above
    """Return the default of a flag; empty for flags that are off or unset."""
    if isinstance(flag.show_default, str):
        return flag.show_default
    if flag.default in (None, "", False) or flag.default == []:
        return ""
    return f"`{flag.default:g}`" if isinstance(flag.default, float) else f"`{flag.default}`"


def main() -> None:
    """Write the file, or compare it with --check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    there = FILE.read_text()
    wanted = written(there)
    if not parser.parse_args().check:
        FILE.write_text(wanted)
    elif there != wanted:
        sys.exit(
            f"cli: docs/reference/{FILE.name} is not what the commands say; run scripts/generate_cli_reference.py"
        )
    else:
        print("cli: ok")


if __name__ == "__main__":
    main()
