"""Entry point of the `rota` command line, which kubectl also finds as `kubectl rota`."""

import os
import sys

from typer import Abort, TyperException

from rota.errors import RotaError
from rota_cli.errors import ExitCode, Failure, exit_code_for
from rota_cli.output.console import discard_stdout, print_err
from rota_cli.program import program

# gRPC's own log lines would appear between the command's output.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main() -> None:
    """Run one command. An error is one line on standard error, and an exit code."""
    sys.exit(run())


def run() -> int:
    """Run one command and return its exit code."""
    try:
        return program(prog_name="rota", standalone_mode=False) or ExitCode.DONE
    except Failure as failure:
        return _report(str(failure), failure.exit_code)
    except RotaError as error:
        return _report(str(error), exit_code_for(error))
    except TyperException as error:
        return _report_usage(error)
    except BrokenPipeError:
        discard_stdout()
        return ExitCode.FAILED
    except (Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED


def _report(message: str, code: int) -> int:
    print_err(f"rota: {message}")
    return code


def _report_usage(error: TyperException) -> int:
    """Print a usage error with a pointer to the command's help; return its exit code."""
    if error.format_message().startswith("Usage:"):
        # Without a command: print the help alone.
        print_err(error.format_message())
        return error.exit_code
    context = getattr(error, "ctx", None)
    command = "rota" if context is None else context.command_path
    message = error.format_message().strip().rstrip(".")
    joint = " See" if message.endswith("?") else ": see"
    return _report(f"{message}{joint} `{command} --help`", error.exit_code)


if __name__ == "__main__":
    main()
