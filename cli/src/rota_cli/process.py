"""
Runs a program's command in this process: one line on standard error for an error, and an exit code.

Called by the two entry points, `__main__` for `rota` and `kubectl` for `kubectl rota`.
"""

import typer
from typer import Abort, TyperException

from rota.errors import RotaError
from rota_cli.errors import ExitCode, Failure, exit_code_for
from rota_cli.output.console import discard_stdout, print_err


def run_program(program: typer.Typer, name: str) -> int:
    """Run one command of the program, which people type as `name`; return its exit code."""
    try:
        return program(prog_name=name, standalone_mode=False) or ExitCode.DONE
    except Failure as failure:
        return _report(str(failure), failure.exit_code)
    except RotaError as error:
        return _report(str(error), exit_code_for(error))
    except TyperException as error:
        return _report_usage(error, name)
    except BrokenPipeError:
        discard_stdout()
        return ExitCode.FAILED
    except (Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED


def _report(message: str, code: int) -> int:
    print_err(f"rota: {message}")
    return code


def _report_usage(error: TyperException, name: str) -> int:
    """Print a usage error with a pointer to the command's help; return its exit code."""
    if error.format_message().startswith("Usage:"):
        # Without a command: print the help alone.
        print_err(error.format_message())
        return error.exit_code
    context = getattr(error, "ctx", None)
    command = name if context is None else context.command_path
    message = error.format_message().strip().rstrip(".")
    joint = " See" if message.endswith("?") else ": see"
    return _report(f"{message}{joint} `{command} --help`", error.exit_code)
