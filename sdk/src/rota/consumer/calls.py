"""What `Consumer` and `AsyncConsumer` do alike: check what was given, deserialize, call interceptors."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rota import errors
from rota.addresses import address_of
from rota.consumer.core import Core
from rota.consumer.engine import Engine
from rota.consumer.options import Options
from rota.consumer.portions import Portion
from rota.consumer.sidecars import GivenSidecar, Sidecar, Subscription
from rota.consumer.validation import topics_fault
from rota.offsets import OffsetAndMetadata, Offsets, completed
from rota.records import Record, TopicPartition

log = logging.getLogger("rota.consumer")

Given = tuple[str, int]
Records = dict[TopicPartition, list[Record[Any, Any]]]


def sidecar_of(options: Options) -> Sidecar:
    """The one that is there, or one to be started."""
    if options.own_sidecar:
        from rota.consumer.child import ChildSidecar

        return ChildSidecar(options, address_of(options.bootstrap_servers))
    return GivenSidecar(options.address)


def subscription_of(topics: str | Iterable[str], pattern: str) -> Subscription:
    """Refuses what is both or neither."""
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if bool(names) == bool(pattern):
        raise errors.InvalidArgument(
            "give either topics or a pattern: one of them says what to read; to read nothing call unsubscribe()"
        )
    if fault := topics_fault(names, pattern):
        raise errors.InvalidArgument(fault)
    return Subscription(names, pattern)


def listed(partitions: Iterable[Given]) -> list[TopicPartition]:
    """As the engine has them: users may give plain pairs."""
    return [TopicPartition(topic, partition) for topic, partition in partitions]


def given_offsets(offsets: Offsets | None) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
    """As the engine has them."""
    if offsets is None:
        return None
    found = {
        TopicPartition(topic, partition): completed(offset) for (topic, partition), offset in offsets.items()
    }
    for partition, offset in found.items():
        if offset.offset < 0:
            raise errors.InvalidArgument(
                f"{offset.offset} for {partition.topic}[{partition.partition}] is no offset: give the next one to read"
            )
    return found


def of_consumer(core: Core, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The same, if all are assigned; none given: all that are."""
    for each in partitions:
        if each not in core.held:
            raise errors.IllegalState(
                f"{each.topic}[{each.partition}] is not assigned to this consumer: poll until it is, or assign() it"
            )
    return list(partitions) or sorted(core.held)


class Making:
    """Makes the records of one poll: as objects, and as the interceptors want them."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def records(self, portion: Portion) -> Iterator[Record[Any, Any]]:
        """One by one; raises what the deserializers raise."""
        return portion.records(self._options.key_deserializer, self._options.value_deserializer)

    def made(self, portion: Portion) -> tuple[list[Record[Any, Any]], Exception | None]:
        """The records up to the first that cannot be made, and why it cannot."""
        if self._options.key_deserializer is None and self._options.value_deserializer is None:
            return list(portion.records(None, None)), None
        records: list[Record[Any, Any]] = []
        try:
            # A comprehension would keep nothing of what it has made until then.
            records.extend(self.records(portion))
        except Exception as error:  # noqa: BLE001  the application's own code
            return records, error
        return records, None

    def intercepted(self, records: Records) -> Records:
        """As the interceptors want them."""
        for interceptor in self._options.interceptors:
            try:
                changed = interceptor.on_consume(records)
            except Exception:
                log.exception("an interceptor raised; the records are returned as they are")
            else:
                records = {partition: list(some) for partition, some in changed.items()}
        return records

    def tell_outcomes(self, engine: Engine) -> None:
        """Callbacks and interceptors hear of commits, in the order in which these were asked for."""
        while engine.outcomes:
            callback, offsets, error = engine.outcomes.popleft()
            if error is None:
                for interceptor in self._options.interceptors:
                    _guarded(interceptor.on_commit, offsets)
            if callback is not None:
                _guarded(callback, offsets, error)


def _guarded(callback: Any, *given: object) -> None:  # noqa: ANN401  the application's own code
    try:
        callback(*given)
    except Exception:
        log.exception("a callback of the application raised; the commit's outcome is not changed by it")


def unreadable(portion: Portion, offset: int, error: Exception) -> errors.DeserializationFailed:
    """What poll raises when a record cannot be made."""
    where = f"{portion.topic}[{portion.partition}] at offset {offset}"
    return errors.DeserializationFailed(
        f"{where}: a deserializer failed ({error}); seek behind the record to go on without it"
    )


def by_partition(portions: Collection[tuple[Portion, list[Record[Any, Any]]]]) -> Records:
    """As poll returns them."""
    found: Records = {}
    for portion, records in portions:
        found.setdefault(portion.place, []).extend(records)
    return found
