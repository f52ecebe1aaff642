"""`rota produce`: writes one record per line of standard input."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rota.errors import RotaError
from rota.records import Header, Headers, RecordMetadata
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.errors import Failure, WrongUsage, exit_code_for
from rota_cli.output.console import print_out, progress_counter
from rota_cli.output.render import OutputFormat, OutputOption, print_data
from rota_cli.output.units import pluralize

if TYPE_CHECKING:
    from rota.producer.api import Producer

# Interval of progress updates: often enough for a reader, too seldom to slow down the command.
SHOWN_EVERY = 1000


class DeliveryCounter:
    """Counts delivered records and keeps the first error; called from the producer's thread."""

    def __init__(self) -> None:
        self.written = 0
        self.error: RotaError | None = None

    def __call__(self, metadata: RecordMetadata, error: RotaError | None) -> None:
        if error is None:
            self.written += 1
        else:
            self.error = self.error or error


@dataclass(frozen=True, slots=True)
class Target:
    """Topic, partition and headers of all records; the key decides without a partition."""

    topic: str
    partition: int | None
    headers: Headers


@with_flags
def produce(
    flags: ConnectionFlags,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")],
    key_separator: Annotated[
        str,
        typer.Option(
            help="Separator between key and value; without it, records have no key.", show_default=False
        ),
    ] = "",
    partition: Annotated[
        int | None,
        typer.Option(min=0, help="Write to this partition, regardless of the key.", show_default="by key"),
    ] = None,
    header: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE", help="Header of every record; can be repeated.", show_default="no headers"
        ),
    ] = [],  # noqa: B006  typer copies it
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write one record per line of standard input."""
    headers = [parse_header(text) for text in header]
    deliveries = DeliveryCounter()
    with flags.open() as cluster:
        (found,) = cluster.records.topics([topic])
        if partition is not None and partition >= found.partitions:
            raise Failure(
                f"topic {topic} has no partition {partition} (it has {found.partitions}): check --partition"
            )
        try:
            producer = cluster.records.producer(deliveries)
            _send_all(producer, _lines(key_separator), deliveries, Target(topic, partition, headers))
        except (Failure, RotaError) as error:
            raise _with_progress(deliveries.error or error, deliveries.written, topic) from None
    if output is OutputFormat.TABLE:
        print_out(f"wrote {pluralize(deliveries.written, 'record')} to {topic}")
    else:
        print_data({"topic": topic, "records": deliveries.written}, output)


def _send_all(
    producer: "Producer",
    lines: Iterable[tuple[bytes | None, bytes]],
    deliveries: DeliveryCounter,
    target: Target,
) -> None:
    """Send all records, close the producer and wait for every outcome; raise the first error."""
    try:
        with progress_counter("records") as show:
            for number, (key, value) in enumerate(lines, 1):
                if deliveries.error is not None:
                    break
                producer.send(target.topic, value, key, target.partition, headers=target.headers)
                if number % SHOWN_EVERY == 0:
                    show(number)
    finally:
        # Wait for outstanding records until --timeout.
        producer.close()
    if deliveries.error is not None:
        raise deliveries.error


def _with_progress(error: Failure | RotaError, written: int, topic: str) -> Failure:
    """Add the number of records written before the failure."""
    failure = Failure(f"{error}; {pluralize(written, 'record')} written to {topic} before")
    failure.exit_code = error.exit_code if isinstance(error, Failure) else exit_code_for(error)
    return failure


def parse_header(text: str) -> Header:
    """
    Parse a header of `--header`; its value may contain the separator too, and may be empty.

    >>> parse_header("traceparent=00-1=2")
    ('traceparent', b'00-1=2')
    """
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise WrongUsage(f"--header {text}: expected KEY=VALUE, such as content-type=text/plain")
    return key, value.encode()


def _lines(key_separator: str) -> Iterable[tuple[bytes | None, bytes]]:
    separator = key_separator.encode()
    for number, line in enumerate(sys.stdin.buffer, 1):
        value = line.removesuffix(b"\n")
        if not separator:
            yield None, value
            continue
        key, found, value = value.partition(separator)
        if not found:
            raise Failure(
                f"line {number} has no key separator {key_separator!r}: fix the line or omit --key-separator"
            )
        yield key, value
