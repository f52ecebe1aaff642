"""`rota doctor`: what is reachable, what is misconfigured, what to do."""

import typer

from rota_cli.checking import Check, Verdict, check_all, worst
from rota_cli.flags import with_flags
from rota_cli.opening import open_cluster
from rota_cli.output import Output, OutputOption, say, say_data
from rota_cli.servers import Servers


@with_flags
def doctor(servers: Servers, output: OutputOption = Output.TABLE) -> None:
    """See what is reachable, what is misconfigured, and what to do."""
    found: list[Check] = []
    for check in check_all(servers.access(), open_cluster):
        found.append(check)
        if output is Output.TABLE:
            say(f"{check.verdict:<8}  {check.what:<12} {check.says}")
    if output is not Output.TABLE:
        say_data([_row(check) for check in found], output)
    elif all(check.verdict is Verdict.OK for check in found):
        say("nothing is wrong that can be seen from here")
    raise typer.Exit(worst(found))


def _row(check: Check) -> dict[str, object]:
    return {"what": check.what, "verdict": str(check.verdict), "says": check.says}
