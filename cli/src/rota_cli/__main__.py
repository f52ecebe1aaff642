"""`rota`, also found by kubectl as `kubectl rota`: the command line. Its first user is `make demo`."""

import os
import sys

from typer import Abort, TyperException

from rota.errors import RotaError
from rota_cli.errors import Exit, Failure, exit_of
from rota_cli.output.console import leave_quietly, note
from rota_cli.program import program

# gRPC's own lines are no sentences, and would stand among ours.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main() -> None:
    """Run one command. What goes wrong is one sentence, and a code for the shell."""
    sys.exit(ended())


def ended() -> int:
    """How the command ended."""
    try:
        return program(prog_name="rota", standalone_mode=False) or Exit.DONE
    except Failure as failure:
        return _said(str(failure), failure.exit)
    except RotaError as error:
        return _said(str(error), exit_of(error))
    except TyperException as wrong:
        return _misused(wrong)
    except BrokenPipeError:
        leave_quietly()
        return Exit.FAILED
    except (Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED


def _said(sentence: str, code: int) -> int:
    note(f"rota: {sentence}")
    return code


def _misused(wrong: TyperException) -> int:
    """What typer says, and where the right words stand."""
    if wrong.format_message().startswith("Usage:"):
        # Nothing was asked for: the help itself.
        note(wrong.format_message())
        return wrong.exit_code
    context = getattr(wrong, "ctx", None)
    command = "rota" if context is None else context.command_path
    sentence = wrong.format_message().strip().rstrip(".")
    joint = " See" if sentence.endswith("?") else ": see"
    return _said(f"{sentence}{joint} `{command} --help`", wrong.exit_code)


if __name__ == "__main__":
    main()
