"""
Pipeline of polled records for `Consumer` and `AsyncConsumer`: deserializers, then interceptors.

Outcomes of commits pass through it as well: interceptors, then the commit's own callback.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import fields
from typing import Any

from rota import errors
from rota.consumer.batch_slice import BatchSlice
from rota.consumer.engine import Engine
from rota.consumer.options import Options
from rota.records import Record, TopicPartition
from rota.serializers import with_topic

log = logging.getLogger("rota.consumer")

Records = dict[TopicPartition, list[Record[Any, Any]]]


class PollPipeline:
    """Deserializes and intercepts the records of each poll."""

    def __init__(self, options: Options) -> None:
        self._options = options
        key, value = options.key_deserializer, options.value_deserializer
        self._key_deserializer = None if key is None else with_topic(key)
        self._value_deserializer = None if value is None else with_topic(value)

        settings = {each.name: getattr(options, each.name) for each in fields(options)}
        for interceptor in options.interceptors:
            interceptor.configure(settings)

    def close(self) -> None:
        """Close the interceptors."""
        for interceptor in self._options.interceptors:
            _call_guarded(interceptor.close)

    def records(self, batch_slice: BatchSlice) -> Iterator[Record[Any, Any]]:
        """Iterate over deserialized records; raises what the deserializers raise."""
        return batch_slice.records(self._key_deserializer, self._value_deserializer)

    def deserialize(self, batch_slice: BatchSlice) -> tuple[list[Record[Any, Any]], Exception | None]:
        """Deserialize records up to the first failure; return them and the failure, if any."""
        if self._key_deserializer is None and self._value_deserializer is None:
            return list(batch_slice.records(None, None)), None
        records: list[Record[Any, Any]] = []
        try:
            # A loop: a comprehension would lose the records that were deserialized before the failure.
            records.extend(self.records(batch_slice))
        except Exception as error:  # noqa: BLE001  the application's own code
            return records, error
        return records, None

    def intercept(self, records: Records) -> Records:
        """Pass records through the interceptors; one that raises is logged and skipped."""
        for interceptor in self._options.interceptors:
            try:
                changed = interceptor.on_consume(records)
            except Exception:
                log.exception("an interceptor raised; the records are returned unchanged")
            else:
                records = {partition: list(some) for partition, some in changed.items()}
        return records

    def run_commit_callbacks(self, engine: Engine) -> None:
        """Run the callbacks of completed commits, interceptors first, in the order of the commits."""
        while engine.commit_outcomes:
            callback, offsets, error = engine.commit_outcomes.popleft()
            if error is None:
                for interceptor in self._options.interceptors:
                    _call_guarded(interceptor.on_commit, offsets)
            if callback is not None:
                _call_guarded(callback, offsets, error)


def _call_guarded(callback: Any, *given: object) -> None:  # noqa: ANN401  the application's own code
    try:
        callback(*given)
    except Exception:
        log.exception("a callback of the application raised; the consumer is not affected")


def deserialization_failed(
    batch_slice: BatchSlice, offset: int, error: Exception
) -> errors.DeserializationFailed:
    """Build the error of a record that cannot be deserialized."""
    where = f"{batch_slice.topic}[{batch_slice.partition}] at offset {offset}"
    return errors.DeserializationFailed(
        f"{where}: a deserializer failed ({error}); seek to the next offset to skip the record"
    )


def by_partition(slices: Collection[tuple[BatchSlice, list[Record[Any, Any]]]]) -> Records:
    """Group records as `poll` returns them."""
    found: Records = {}
    for batch_slice, records in slices:
        found.setdefault(batch_slice.topic_partition, []).extend(records)
    return found
