"""
One copier of the copy job as a process, on Rota's log or on Kafka: `rota.Consumer` reads, and each transaction of
`rota.Producer` takes what a poll gave and the offsets behind it.

It tells what happens to it, a line for each event. In mid-transaction it stops itself (SIGSTOP) where it is told to, or
holds its main thread alone, until SIGUSR1. Run as `python -m tests.log.copy_worker`; SIGTERM ends it.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

import rota
from rota import errors
from rota.consumer.listeners import Partitions

# Where it can stop: its records are in the log; the group's offsets are part of the transaction too.
POINTS = ("produced", "offered")
POLL_MS = 500
# The transaction is not this copier's to end any more: somebody else owns the partitions, or its transactional id.
LATE = (
    errors.UnknownMemberId,
    errors.IllegalGeneration,
    errors.RebalanceInProgress,
    errors.FencedInstanceId,
    errors.ProducerFenced,
)
# Whether the transaction counts is known when the next producer with its id begins.
GONE = (errors.UndecidedCommit, errors.Disconnected, errors.TimedOut)


def copy(
    consumer: rota.Consumer, producer: rota.Producer, target: str, reached: Callable[[str], None]
) -> None:
    """Send the records of one poll, each to the partition of the same number."""
    polled = consumer.poll(timeout_ms=POLL_MS)
    if not polled:
        return
    with producer.transaction():
        for partition, records in polled.items():
            for record in records:
                producer.send(target, record.value, record.key, partition=partition.partition)
        reached("produced")
        producer.send_offsets_to_transaction(
            {partition: records[-1].offset + 1 for partition, records in polled.items()},
            consumer.group_metadata(),
        )
        reached("offered")


def copy_on(options: argparse.Namespace, stop: "Stop") -> None:
    """As one member of the group, and one producer; until something is refused."""
    with (
        rota.Producer(options.servers, **options.producer) as producer,
        rota.Consumer(
            bootstrap_servers=options.servers,
            enable_auto_commit=False,
            isolation_level="read_committed",
            **options.consumer,
        ) as consumer,
    ):
        # Also ends what a former one with this transactional id has left open.
        producer.init_transactions()
        consumer.subscribe(options.source, listener=LoggingListener(consumer))
        while True:
            copy(consumer, producer, options.target, lambda point: stop.reached(point, producer))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--consumer", type=json.loads, required=True, help="its settings, as JSON")
    parser.add_argument("--producer", type=json.loads, required=True, help="its settings, as JSON")
    parser.add_argument("--stop-at", choices=POINTS, default="")
    parser.add_argument("--stop-after", type=int, default=0, help="in which transaction, at the earliest")
    parser.add_argument("--holds", action="store_true", help="as an application that takes long")
    options = parser.parse_args()
    # For all threads that there will be.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    say("started", os.getpid())
    stop = Stop(options.stop_at, options.stop_after, options.holds)
    while True:
        try:
            copy_on(options, stop)
        except errors.FencedInstanceId as refused:
            # Another process has this one's name: to begin anew would only throw that one out.
            say("refused", refused.name, refused)
            return
        except LATE as refused:
            say("refused", refused.name, refused)
        except GONE as gone:
            say("gone", gone)


def say(event: str, *fields: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, (event, *fields))) + "\n")
    sys.stdout.flush()


@dataclass
class LoggingListener(rota.RebalanceListener):
    """Tells the test what the consumer owns, and in which generation."""

    consumer: rota.Consumer

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        owned = sorted(each.partition for each in self.consumer.assignment())
        say("assigned", len(owned))
        say("owns", self.consumer.group_metadata().generation_id, *owned)


@dataclass
class Stop:
    """The test's hand in a transaction."""

    point: str
    # Transactions until then.
    after: int
    holds: bool

    def reached(self, point: str, producer: rota.Producer) -> None:
        self.after -= point == "produced"
        if point == self.point and self.after <= 0:
            self.point = ""
            producer.flush()
            if self.holds:
                say("holding", point)
                signal.sigwait({signal.SIGUSR1})
            else:
                say("stopping", point)
                # This very thread, so that it does not go on until another one has taken the signal.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


if __name__ == "__main__":
    main()
