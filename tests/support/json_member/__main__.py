"""
A group member as a process: JSON events on stdout, JSON commands on stdin, no records. README.md lists them.

    python -m tests.support.json_member --group-id=orders --topics=events [--acknowledge=manual]

Takes the sidecar's flags and runs the sidecar's membership as it ships. Started by `tests.support.sidecar`.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rota_service.event_log import EventLog, open_event_log
from rota_sidecar.__main__ import configured, insist_on_ending
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.core.member.actions import Ended, Problem
from rota_sidecar.membership.driver import STATE_FILE_RECOVERED, MemberEvent, Membership, StateFileRecovered
from rota_sidecar.membership.state_file import StateFileError
from rota_sidecar.wiring import Strategies, engine_for, member_for, offers_of, open_state, wall_ms
from tests.support.json_member.lines import LineReader, LineWriter, OutputStalled
from tests.support.json_member.translation import Clocks, JsonMember, Settings

# Its one flag of its own: a command says when revoked partitions are released; else they are at once.
MANUAL = "--acknowledge=manual"


def main() -> None:
    """Run the member; exit with 0 when it ends as requested, else with 1 and a message."""
    arguments = sys.argv[1:]
    acknowledges = MANUAL not in arguments
    _, config, strategies = configured([argument for argument in arguments if argument != MANUAL])
    if not config.has_subscription:
        sys.exit("json-member: --topics or --topic-pattern is required")
    try:
        failed = asyncio.run(serve(config, strategies, acknowledges=acknowledges))
    except StateFileError as error:
        failed = str(error)
    sys.exit(f"json-member: {failed}" if failed else 0)


async def serve(config: SidecarConfig, strategies: Strategies, *, acknowledges: bool) -> str:
    """Run the member until it ends; return why it failed, or an empty string. Raises StateFileError."""
    failed = "it broke"
    try:
        failed = await serve_member(
            config,
            strategies,
            open_event_log("json-member", config.process.log_format),
            acknowledges=acknowledges,
        )
    finally:
        insist_on_ending(1 if failed else 0)
    return failed


async def serve_member(
    config: SidecarConfig, strategies: Strategies, event_log: EventLog, *, acknowledges: bool
) -> str:
    """Connect lines and membership, and run both; return why the member failed, or an empty string. Raises StateFileError."""
    state_file = open_state(config)
    saved, forgotten = (None, "") if state_file is None else state_file.read()
    reader, writer = LineReader(sys.stdin.fileno()), LineWriter(sys.stdout.fileno())
    offers = offers_of(strategies)
    settings = Settings(config.member.group_id, offers, acknowledges, config.process.leave_timeout_ms)
    member = JsonMember(settings, clocks(), writer.put)
    listener = logged(event_log, member.listen)
    engine = engine_for(config, strategies, member.on_coordinator_event, state_file)
    membership = Membership(member_for(config, offers), engine, listener)
    member.attach_member(membership)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, member.end, number.name)
    writer.start()
    reader.start()
    if forgotten:
        listener(Problem(forgotten))
    try:
        return await until_ended(
            membership.run(saved), execute_commands(reader, member), watch_output(writer, member)
        )
    finally:
        writer.close()
        if state_file is not None:
            state_file.close()


async def until_ended(running: Awaitable[Ended], *tending: Coroutine[Any, Any, None]) -> str:
    """Run the membership with its side tasks; return why it failed, or an empty string. A failing side task fails it."""
    failed = ""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in tending]
            ended = await running
            failed = ended.reason if ended.failed else ""
            for task in tasks:
                task.cancel()
    except* OutputStalled as stalled:
        failed = str(stalled.exceptions[0])
    return failed


async def execute_commands(reader: LineReader, member: JsonMember) -> None:
    """Execute commands in the order of their lines, until cancelled."""
    while True:
        member.execute(await reader.next())


async def watch_output(writer: LineWriter, member: JsonMember) -> None:
    """Leave the group when no process reads standard output any more."""
    await writer.broken.wait()
    member.end("nobody reads the events any more")


def logged(event_log: EventLog, listener: Callable[[MemberEvent], None]) -> Callable[[MemberEvent], None]:
    """Wrap the listener: problems and the end are written to the event event_log too."""

    def listen(event: MemberEvent) -> None:
        if isinstance(event, Problem):
            event_log.warning(event.message)
        elif isinstance(event, Ended):
            event_log.info("stopped", f"the member has stopped: {event.reason}")
        elif isinstance(event, StateFileRecovered):
            event_log.info("kept", STATE_FILE_RECOVERED)
        listener(event)

    return listen


def clocks() -> Clocks:
    """Read the wall clock, and the monotonic clock that all processes of the machine share."""
    loop = asyncio.get_running_loop()
    return Clocks(wall_ms, lambda: int(loop.time() * 1000))


if __name__ == "__main__":
    main()
