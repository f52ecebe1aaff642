"""A bare member as a process: put together, and stopped in order. Called by `program`."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rota_service.event_log import EventLog
from rota_sidecar.core.member.actions import Ended, Problem
from rota_sidecar.json_member.lines import LineReader, LineWriter, NobodyReads
from rota_sidecar.json_member.mode import Clocks, MembershipOnly, Settings
from rota_sidecar.membership.driver import STATE_FILE_RECOVERED, MemberEvent, Membership, StateFileRecovered
from rota_sidecar.wiring import Strategies, engine_for, member_for, offers_of, open_state, wall_ms


async def serve_member(options: argparse.Namespace, strategies: Strategies, event_log: EventLog) -> str:
    """Be a member until that has ended; why it failed, in one sentence, or nothing. Raises StateFileError."""
    state_file = open_state(options)
    saved, forgotten = (None, "") if state_file is None else state_file.read()
    reader, writer = LineReader(sys.stdin.fileno()), LineWriter(sys.stdout.fileno())
    offers = offers_of(strategies)
    settings = Settings(options.group_id, offers, options.acknowledge == "auto", options.leave_timeout_ms)
    mode = MembershipOnly(settings, clocks(), writer.put)
    listener = written_down(event_log, mode.listen)
    engine = engine_for(options, strategies, mode.hear, state_file)
    membership = Membership(member_for(options, offers), engine, listener)
    mode.attach_member(membership)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, mode.end, number.name)
    writer.start()
    reader.start()
    if forgotten:
        listener(Problem(forgotten))
    try:
        return await until_ended(membership.run(saved), obeying(reader, mode), minding(writer, mode))
    finally:
        writer.close()
        if state_file is not None:
            state_file.close()


async def until_ended(running: Awaitable[Ended], *tending: Coroutine[Any, Any, None]) -> str:
    """Why the membership failed, or nothing; what breaks beside it breaks it too."""
    failed = ""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in tending]
            ended = await running
            failed = ended.reason if ended.failed else ""
            for task in tasks:
                task.cancel()
    except* NobodyReads as stuck:
        failed = str(stuck.exceptions[0])
    return failed


async def obeying(reader: LineReader, mode: MembershipOnly) -> None:
    """Do what is said, line by line, for ever."""
    while True:
        mode.obey(await reader.next())


async def minding(writer: LineWriter, mode: MembershipOnly) -> None:
    """Whoever started this to read its events is gone: then it is of no use to anybody."""
    await writer.broken.wait()
    mode.end("nobody reads the events any more")


def written_down(
    event_log: EventLog, listener: Callable[[MemberEvent], None]
) -> Callable[[MemberEvent], None]:
    """The listener, and beside it the event log for what somebody may have to mend."""

    def listen(told: MemberEvent) -> None:
        if isinstance(told, Problem):
            event_log.warning(told.sentence)
        elif isinstance(told, Ended):
            event_log.info("stopped", f"the member has stopped: {told.reason}")
        elif isinstance(told, StateFileRecovered):
            event_log.info("kept", STATE_FILE_RECOVERED)
        listener(told)

    return listen


def clocks() -> Clocks:
    """The time of day, and the machine's steady clock, which all processes on it share."""
    loop = asyncio.get_running_loop()
    return Clocks(wall_ms, lambda: int(loop.time() * 1000))
