"""The sidecar, put together: what its options ask for, started, and stopped in order. Called by `__main__`."""

import argparse
import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rota_sidecar import options as asked
from rota_sidecar.assignors.model import Assignor
from rota_sidecar.engines.port import Coordination, Hear, Topics
from rota_sidecar.journal import Journal, set_up
from rota_sidecar.leading import Leader
from rota_sidecar.lines import LineReader, LineWriter, NobodyReads
from rota_sidecar.member.actions import Ended, Problem
from rota_sidecar.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.member.member import Member
from rota_sidecar.membership import Engine, Membership, Told
from rota_sidecar.membership_only import Clocks, MembershipOnly, Settings
from rota_sidecar.state_file import Owner, StateFile

if TYPE_CHECKING:
    from rota_sidecar.engines.kafka.settings import KafkaSettings
    from rota_sidecar.engines.rota.connection import Credentials

ENDING_S = 2
Strategies = Mapping[str, Assignor]


@dataclass(frozen=True, slots=True)
class Adapters:
    """The engine, as it is spoken to."""

    coordination: Coordination
    topics: Topics
    protocol_of_group: Callable[[float], Awaitable[str]] | None = None


async def serve(options: argparse.Namespace, strategies: Strategies) -> str:
    """Be a member until that has ended; why it failed, in one sentence, or nothing. Raises StateFileError."""
    journal = set_up(options.log_format)
    state_file = open_state(options)
    remembered, forgotten = (None, "") if state_file is None else state_file.read()
    reader, writer = LineReader(sys.stdin.fileno()), LineWriter(sys.stdout.fileno())
    offers = {name: Strategy(name, strategy.cooperative) for name, strategy in strategies.items()}
    settings = Settings(options.group_id, offers, options.acknowledge == "auto", options.leave_timeout_ms)
    mode = MembershipOnly(settings, clocks(), writer.put)
    listener = written_down(journal, mode.listen)
    member = Member(
        member_config(options), subscription(options), tuple(offers[name] for name in offered(options))
    )
    engine = engine_for(options, strategies, mode.hear, state_file)
    membership = Membership(member, engine, listener)
    mode.speak_for(membership)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, mode.end, number.name)
    writer.start()
    reader.start()
    if forgotten:
        listener(Problem(forgotten))
    failed = "it broke"
    try:
        failed = await until_ended(membership.run(remembered), obeying(reader, mode), minding(writer, mode))
    finally:
        writer.close()
        if state_file is not None:
            state_file.close()
        insist_on_ending(1 if failed else 0)
    return failed


def insist_on_ending(code: int) -> None:
    """Python waits for every thread at its end, and a strategy of somebody else's may never return from one."""
    timer = threading.Timer(ENDING_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


async def until_ended(running: Awaitable[Ended], *tending: Awaitable[None]) -> str:
    """Why the membership failed, or nothing; what breaks beside it breaks it too."""
    failed = ""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(waited(each)) for each in tending]
            ended = await running
            failed = ended.reason if ended.failed else ""
            for task in tasks:
                task.cancel()
    except* NobodyReads as stuck:
        failed = str(stuck.exceptions[0])
    return failed


async def waited(work: Awaitable[None]) -> None:
    """A coroutine of anything that can be awaited."""
    await work


async def obeying(reader: LineReader, mode: MembershipOnly) -> None:
    """Do what is said, line by line, for ever."""
    while True:
        mode.obey(await reader.next())


async def minding(writer: LineWriter, mode: MembershipOnly) -> None:
    """Whoever started this to read its events is gone: then it is of no use to anybody."""
    await writer.broken.wait()
    mode.end("nobody reads the events any more")


def written_down(journal: Journal, listener: Callable[[Told], None]) -> Callable[[Told], None]:
    """The listener, and beside it the journal for what somebody may have to mend."""

    def listen(told: Told) -> None:
        if isinstance(told, Problem):
            journal.warn(told.sentence)
        elif isinstance(told, Ended):
            journal.tell("stopped", f"the member has stopped: {told.reason}")
        listener(told)

    return listen


def open_state(options: argparse.Namespace) -> StateFile | None:
    """Where the member is remembered, if that is wanted."""
    if not options.state_folder:
        return None
    return StateFile(Path(options.state_folder), Owner(options.group_id, options.group_instance_id or None))


def engine_for(
    options: argparse.Namespace, strategies: Strategies, hear: Hear, state_file: StateFile | None
) -> Engine:
    """All that the membership needs of the outside."""
    adapters = adapters_for(options, hear)
    return Engine(
        adapters.coordination,
        adapters.topics,
        Leader(options.group_id, adapters.coordination, adapters.topics, strategies, wall_ms),
        random.random,
        options.topics_refresh_ms / 1000,
        state_file,
        adapters.protocol_of_group,
    )


def member_config(options: argparse.Namespace) -> MemberConfig:
    """What stays as it is."""
    return MemberConfig(
        group_id=options.group_id,
        client_id=options.client_id,
        instance_id=options.group_instance_id or None,
        rack=options.rack,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        rebalance_timeout_ms=options.rebalance_timeout_ms,
    )


def subscription(options: argparse.Namespace) -> Subscription:
    """The topics to begin with."""
    return Subscription(tuple(asked.listed(options.topics)), options.topic_pattern)


def offered(options: argparse.Namespace) -> list[str]:
    """The strategies to begin with, the preferred one first."""
    return asked.listed(options.assignors)


def adapters_for(options: argparse.Namespace, hear: Hear) -> Adapters:
    """The engine's own; what the other one needs is not even loaded."""
    topics: Topics
    if asked.speaks_rota(options):
        from rota_sidecar.engines.rota.topics import RotaTopics

        topics = RotaTopics(asked.rota_addresses(options), rota_credentials(options))
    else:
        from rota_sidecar.engines.kafka.topics import KafkaTopics

        topics = KafkaTopics(kafka_settings(options))
    if asked.is_coordinated_by_rota(options):
        from rota_sidecar.engines.rota.coordination import RotaCoordination

        addresses = asked.rota_addresses(options)
        coordination = RotaCoordination(options.group_id, addresses, rota_credentials(options), hear)
        return Adapters(coordination, topics)
    from rota_sidecar.engines.kafka.coordination import KafkaCoordination

    brokers = KafkaCoordination(kafka_settings(options), options.group_id, hear)
    return Adapters(brokers, topics, brokers.protocol_of_group)


def rota_credentials(options: argparse.Namespace) -> "Credentials":
    """What Rota's servers are shown."""
    from rota_sidecar.engines.rota.connection import Credentials

    return Credentials(
        tls=asked.has_tls(options),
        ca_file=file(options.tls_ca),
        certificate_file=file(options.tls_cert),
        key_file=file(options.tls_key),
        token_file=file(options.token_file),
    )


def kafka_settings(options: argparse.Namespace) -> "KafkaSettings":
    """What brokers are shown."""
    from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl, TlsFiles

    tls = TlsFiles(file(options.tls_ca), file(options.tls_cert), file(options.tls_key))
    login = Sasl(
        options.sasl_mechanism,
        options.sasl_username,
        options.sasl_password,
        file(options.sasl_username_file),
        file(options.sasl_password_file),
    )
    return KafkaSettings(
        tuple(asked.listed(options.bootstrap_servers)),
        options.client_id,
        tls if asked.has_tls(options) else None,
        login if options.sasl_mechanism else None,
        options.insecure,
    )


def file(name: str) -> Path | None:
    """The file, if one is named."""
    return Path(name) if name else None


def clocks() -> Clocks:
    """The time of day, and the machine's steady clock, which all processes on it share."""
    loop = asyncio.get_running_loop()
    return Clocks(wall_ms, lambda: int(loop.time() * 1000))


def wall_ms() -> int:
    """The time of day."""
    return int(time.time() * 1000)  # noqa: TID251  given to all who need it from here
