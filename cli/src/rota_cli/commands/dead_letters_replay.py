"""`rota dead-letters replay`: prints the dead letters to replay, or writes them to their topics again."""

from collections.abc import Sequence
from typing import Annotated

import typer

from rota_cli.clusters.clocks import system_clocks
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.dead_letter_filter import DeadLetterFlags, DeadLetterTopic
from rota_cli.commands.dead_letter_headers import DeadLetter
from rota_cli.commands.dead_letter_replay import Replay
from rota_cli.commands.dead_letter_scan import TopicScan
from rota_cli.commands.dead_letters import COLUMNS, partitions_of, rows_of
from rota_cli.commands.flags import with_flags
from rota_cli.errors import WrongUsage
from rota_cli.output.console import print_err, progress_counter
from rota_cli.output.render import OutputFormat, OutputOption, print_data, print_list
from rota_cli.output.units import pluralize


@with_flags
def replay(
    flags: ConnectionFlags,
    chosen: DeadLetterFlags,
    topic: DeadLetterTopic,
    max_dead_letters: Annotated[
        int | None, typer.Option(min=1, help="Replay at most this many dead letters.", show_default="all")
    ] = None,
    execution: Annotated[
        bool | None,
        typer.Option(
            "--execute/--dry-run",
            help="Replay, or only print the plan; one of them is required.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """
    Replay dead letters: write each record to the topic and partition it came from, once. A dead letter that was replayed is not
    replayed again.
    """
    if execution is None:
        raise WrongUsage("add --dry-run to print the plan, or --execute to apply it")
    wanted = chosen.filter()
    with flags.open() as cluster:
        partitions = partitions_of(cluster.records, topic)
        scan = TopicScan(cluster.records, system_clocks().monotonic_s, flags.timeout)
        plan = Replay(cluster.records, scan, partitions, wanted, max_dead_letters)
        if execution:
            with progress_counter("dead letters") as show:
                found = plan.execute(show)
        else:
            found = plan.plan()
    _show(topic, found, output, executed=execution)


def _show(topic: str, found: Sequence[DeadLetter], output: OutputFormat, *, executed: bool) -> None:
    rows = rows_of(found, output)
    replayed = sum(each.is_replayed for each in found)
    skipped = sum(bool(each.problem) for each in found)
    if output is not OutputFormat.TABLE:
        print_data(
            {
                "topic": topic,
                "executed": executed,
                "replayed": replayed,
                "skipped": skipped,
                "dead_letters": rows,
            },
            output,
        )
        return
    print_list(rows, output, COLUMNS, none=f"no dead letters to replay in {topic}")
    if skipped:
        print_err(f"{pluralize(skipped, 'dead letter')} cannot be replayed: see the remarks")
    if executed:
        print_err(f"replayed {pluralize(replayed, 'dead letter')} of {topic}")
    else:
        print_err("dry run, nothing changed; use --execute to apply")
