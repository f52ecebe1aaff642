"""Handlers: functions of one record, and the verdicts that they return or raise."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rota import errors
from rota.consumer.batch_slice import Deserializer, GivenDeserializer
from rota.records import Record
from rota.serializers import with_topic

Function = Callable[[Record[Any, Any]], object] | Callable[[Record[Any, Any]], Awaitable[object]]
Ordering = Literal["partition", "key", "unordered"]
ORDERINGS: tuple[Ordering, ...] = ("partition", "key", "unordered")


class Verdict(Exception):
    """Base of the exceptions with which a handler gives a verdict other than ACK."""


class Retry(Verdict):
    """
    Deliver the record again: after so many seconds, or after the group's backoff.

    >>> raise rota.Retry(after=30, reason="the shop is closed")    # doctest: +SKIP
    """

    def __init__(self, after: float | None = None, reason: str = "") -> None:
        super().__init__(reason)
        if after is not None and after < 0:
            raise errors.InvalidArgument(f"Retry(after={after}): after must be 0 or more seconds")
        self.after = after
        self.reason = reason


class DeadLetter(Verdict):
    """
    The record has failed permanently: write it to the dead-letter topic.

    >>> raise rota.DeadLetter("no such customer")    # doctest: +SKIP
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Skip(Verdict):
    """Continue without the record; it is counted as skipped."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and the topics that it handles. Created by `rota.handler`; it remains callable as a function."""

    function: Function
    topics: Sequence[str]
    ordering: Ordering
    concurrency: int
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    def __call__(self, record: Record[Any, Any]) -> object:
        return self.function(record)

    @property
    def is_async(self) -> bool:
        """Return whether the function is asynchronous."""
        return inspect.iscoroutinefunction(self.function)


def handler(
    *topics: str,
    ordering: Ordering = "partition",
    concurrency: int = 64,
    key_deserializer: GivenDeserializer | None = None,
    value_deserializer: GivenDeserializer | None = None,
) -> Callable[[Function], Handler]:
    """
    Make a function the handler of topics.

    The function gets one record. The record is done when the function returns; the function may raise `Retry`, `DeadLetter`
    or `Skip`, and any other exception is a retry with the exception as its reason. With `ordering="key"` records with the same
    key are processed one after another, and others concurrently, up to `concurrency` at a time; with "partition" records of a
    partition are processed one after another; with "unordered" in any order. A synchronous function runs in a thread.

    >>> @rota.handler("orders", ordering="key")     # doctest: +SKIP
    ... def bill(record):
    ...     send_invoice(record.value)
    >>> rota.run(bill, group_id="billing", bootstrap_servers="rota://127.0.0.1:7070")    # doctest: +SKIP
    """
    if not topics:
        raise errors.InvalidArgument("a handler needs a topic, as in @rota.handler('orders')")
    if ordering not in ORDERINGS:
        raise errors.InvalidArgument(f"ordering is {ordering!r}: use one of {', '.join(ORDERINGS)}")
    if concurrency < 1:
        raise errors.InvalidArgument(f"concurrency is {concurrency}; it must be 1 or more")

    key, value = (
        None if each is None else with_topic(each) for each in (key_deserializer, value_deserializer)
    )

    def made(function: Function) -> Handler:
        return Handler(function, topics, ordering, concurrency, key, value)

    return made


def check_together(handlers: Sequence[Handler]) -> None:
    """Check that handlers can share one member of the group, and its settings."""
    if not handlers:
        raise errors.InvalidArgument("no handler to run: pass functions decorated with @rota.handler")
    for each in handlers:
        if not isinstance(each, Handler):
            raise errors.InvalidArgument(
                f"{each!r} is not a handler: decorate it with @rota.handler('topic')"
            )
    if len({(each.ordering, each.concurrency) for each in handlers}) > 1:
        raise errors.InvalidArgument(
            "handlers of one process share one member of the group: use the same ordering and concurrency for all"
        )
    topics = [topic for each in handlers for topic in each.topics]
    twice = sorted({topic for topic in topics if topics.count(topic) > 1})
    if twice:
        raise errors.InvalidArgument(f"{twice[0]} has two handlers: use one handler per topic")
