"""
Replay dead letters to their origin, each once; see docs/decisions/0038.

One transaction has the records of some dead letters, and for each partition of the dead-letter topic a marker of their offsets.
The transactional id follows from the topic: a replay fences the one before it, and reads afterwards what that one has committed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rota import errors
from rota.records import Record, TopicPartition
from rota_cli.clusters.port import Records
from rota_cli.commands.dead_letter_filter import DeadLetterFilter
from rota_cli.commands.dead_letter_headers import DeadLetter, marker_of, own_headers
from rota_cli.commands.dead_letter_scan import TopicScan, with_problems
from rota_cli.errors import Failure, exit_code_for
from rota_cli.output.units import pluralize

if TYPE_CHECKING:
    from rota.producer.api import Producer

# A kill costs the work of one transaction; a transaction costs a marker for each partition.
DEAD_LETTERS_PER_TRANSACTION = 500
BYTES_PER_TRANSACTION = 4 << 20
FENCED = (errors.ProducerFenced, errors.InvalidProducerEpoch)

# The record and its dead letter.
Batch = list[tuple[Record, DeadLetter]]


def transactional_id_of(topic: str) -> str:
    """Return the transactional id of replays; it begins with the topic, as permissions for a prefix require."""
    return f"{topic}.rota-replay"


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay of the chosen dead letters of a topic, at most so many."""

    records: Records
    scan: TopicScan
    partitions: Sequence[TopicPartition]
    wanted: DeadLetterFilter
    dead_letters_max: int | None = None

    def plan(self, *, read_committed: bool = True) -> list[DeadLetter]:
        """
        Return the dead letters that were not replayed, with the problems of those to skip.

        With `read_committed`, up to the first open transaction; else up to the end, when all transactions before it have ended.
        """
        starts = {here: there.start for here, there in self.records.ranges(self.partitions).items()}
        ranges = self.records.ranges(self.partitions, read_committed=read_committed)
        ends = {here: there.end for here, there in ranges.items()}
        found = with_problems(self.scan.dead_letters(starts, ends, self.wanted), self.records.topics())
        return _limited(found, self.dead_letters_max)

    def execute(self, show: Callable[[int], None]) -> list[DeadLetter]:
        """Replay, and return the plan with what was replayed; `show` is given the number of replayed ones. Raises Failure."""
        topic = self.partitions[0].topic
        replayed: set[tuple[TopicPartition, int]] = set()
        try:
            with _producer(self.records, topic) as producer:
                # Only now: nothing that another replay may still commit is missing.
                planned = self.plan(read_committed=False)
                for batch in self._batches(planned):
                    _replay(producer, topic, batch)
                    replayed |= {(each.partition, each.offset) for _, each in batch}
                    show(len(replayed))
        except errors.RotaError as error:
            raise _failure(error, topic, len(replayed)) from error
        return [replace(each, is_replayed=(each.partition, each.offset) in replayed) for each in planned]

    def _batches(self, planned: Sequence[DeadLetter]) -> Iterator[Batch]:
        """Yield the records to replay, in transactions of limited size."""
        pending = {(each.partition, each.offset): each for each in planned if not each.problem}
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for partition, offset in pending:
            starts.setdefault(partition, offset)
            ends[partition] = offset + 1
        batch: Batch = []
        size = 0
        for record in self.scan.read(starts, ends):
            dead_letter = pending.get((TopicPartition(record.topic, record.partition), record.offset))
            if dead_letter is None:
                continue
            batch.append((record, dead_letter))
            size += len(record.key or b"") + len(record.value or b"")
            if len(batch) >= DEAD_LETTERS_PER_TRANSACTION or size >= BYTES_PER_TRANSACTION:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def _limited(found: list[DeadLetter], pending_max: int | None) -> list[DeadLetter]:
    """Keep the first so many that can be replayed, and all that cannot."""
    if pending_max is None:
        return found
    kept = [each for each in found if not each.problem][:pending_max]
    chosen = {(each.partition, each.offset) for each in kept}
    return [each for each in found if each.problem or (each.partition, each.offset) in chosen]


@contextmanager
def _producer(records: Records, topic: str) -> Iterator["Producer"]:
    """Initialize the producer, which fences earlier replays of the topic; close it at the end."""
    producer = records.transactional_producer(transactional_id_of(topic))
    try:
        producer.init_transactions()
        yield producer
    except BaseException as error:
        try:
            producer.close()
        except errors.RotaError as failed:
            # The first error is the cause; this one is its consequence.
            error.add_note(f"the producer could not be closed either: {failed}")
        raise
    producer.close()


def _replay(producer: "Producer", topic: str, batch: Batch) -> None:
    """Write the records and the markers of a batch in one transaction."""
    marked: dict[int, list[int]] = {}
    try:
        with producer.transaction():
            for record, dead_letter in batch:
                assert dead_letter.origin is not None
                producer.send(
                    dead_letter.origin.partition.topic,
                    record.value,
                    record.key,
                    dead_letter.origin.partition.partition,
                    # Kafka has -1 for a record without one.
                    record.timestamp_ms if record.timestamp_ms >= 0 else None,
                    own_headers(record.headers),
                )
                marked.setdefault(record.partition, []).append(record.offset)
            for partition, offsets in marked.items():
                producer.send(topic, None, None, partition, headers=marker_of(offsets))
    except errors.UndecidedCommit:
        # Asking again is the only way to learn the outcome.
        producer.commit_transaction()


def _failure(error: errors.RotaError, topic: str, done: int) -> Failure:
    """Add the number of dead letters that were replayed before the error, and the way on."""
    before = f"{pluralize(done, 'dead letter')} replayed before"
    # A commit after a send that was fenced is rejected for the state of its transaction.
    if isinstance(error, FENCED) or isinstance(error.__cause__, FENCED):
        failure = Failure(
            f"another replay of {topic} was started, or the transaction has timed out; {before}: see `rota dead-letters list {topic}` for "
            "the rest"
        )
    else:
        failure = Failure(f"{error}; {before}: run the command again for the rest, it replays none twice")
    failure.exit_code = exit_code_for(error)
    return failure
