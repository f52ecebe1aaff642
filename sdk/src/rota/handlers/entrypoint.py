"""`rota.run`: runs handlers as a process until SIGTERM or SIGINT."""

import asyncio
import signal
import threading
from dataclasses import replace
from typing import Unpack

from rota import errors
from rota.clocks import system_clocks
from rota.consumer.arguments import sidecar_of
from rota.consumer.options import Options, Settings, options_of
from rota.handlers.handler import Handler, check_together
from rota.handlers.runner import Runner

# Settings of polling consumers, which a handler declares itself or does not need.
OF_POLLING = (
    "consumer_timeout_ms",
    "enable_auto_commit",
    "interceptors",
    "key_deserializer",
    "max_buffered_records",
    "max_poll_records",
    "value_deserializer",
)


def run(*handlers: Handler, dead_letter_topic: str = "", **settings: Unpack[Settings]) -> None:
    """
    Run handlers until SIGTERM or SIGINT: records in flight are finished, and no other is begun.

    It returns within `drain_timeout_ms` of the signal: a handler that has not returned after two thirds of that is
    abandoned and its record delivered again; the last third is for committing and leaving the group.

    Settings are those of a consumer. With `bootstrap_servers=` it starts a sidecar of its own, with the handlers' ordering
    and concurrency; a running sidecar must have the same ones. `dead_letter_topic` receives records that have failed
    permanently; without it they stop their partition.

    >>> rota.run(bill, group_id="billing", bootstrap_servers="rota://127.0.0.1:7070")    # doctest: +SKIP
    """
    check_together(handlers)
    options = _options(handlers[0], settings, dead_letter_topic)
    asyncio.run(_run(handlers, options))


def _options(like: Handler, settings: Settings, dead_letter_topic: str) -> Options:
    for name in OF_POLLING:
        if name in settings:
            raise errors.InvalidArgument(f"{name} is a setting of polling consumers: omit it in rota.run")
    options = options_of(settings)
    if options.own_sidecar:
        flags = [*options.sidecar_flags, f"--ordering={like.ordering}", f"--concurrency={like.concurrency}"]
        if dead_letter_topic:
            flags.append(f"--dead-letter-topic={dead_letter_topic}")
        return replace(options, sidecar_flags=flags)
    if dead_letter_topic:
        raise errors.InvalidArgument(
            "dead_letter_topic is a setting of the sidecar, but this process uses a running one: set it there"
        )
    return options


async def _run(handlers: tuple[Handler, ...], options: Options) -> None:
    runner = Runner(handlers, sidecar_of(options), options.client_id, system_clocks().monotonic_s)
    runner.finish_s = (options.drain_timeout_ms - options.sidecar_drain_timeout_ms) / 1000
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.stop)
    await runner.run()
