"""
Detection of deleted and recreated topics, by their topic ids. Used by `reading.py`.

librdkafka continues in a topic that was deleted and recreated with the same name, and does not say which topic is unknown.
The watch therefore asks the brokers for the topic ids: when a partition is added, every `CHECK_INTERVAL_S`, and at once
after an error that may come from a missing topic.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.delivery.events import FetchError
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topics import KafkaTopics
from rota_sidecar.engines.port import Refused, Unreachable

CHECK_INTERVAL_S = 30.0
RECHECK_S = 2.0
TIMEOUT_S = 10.0

OnTopicError = Callable[[Partition, FetchError], None]


class TopicWatch:
    """
    Must be created and used on a running loop. `on_error` is called on it, once for each check that finds an error.

    Invariant: a topic is compared with the id that the first check after `watch` has found.
    """

    def __init__(self, settings: KafkaSettings, on_error: OnTopicError) -> None:
        self._topics = KafkaTopics(settings)
        self._on_error = on_error
        # The topic id of each watched partition; empty: not known yet.
        self._ids: dict[Partition, bytes] = {}
        self._due = asyncio.Event()
        # True after a fetch error that may come from a missing topic.
        self._is_suspect = False
        # Missing in one check. The broker that was asked may not know a new topic yet, so a second check decides.
        self._missing: set[Partition] = set()
        self._checking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def watch(self, partition: Partition) -> None:
        """Watch the topic of a partition until `forget`."""
        if partition in self._ids:
            return
        self._ids[partition] = b""
        self._due.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._check_periodically())
            self._task.add_done_callback(_ended)

    def forget(self, partition: Partition) -> None:
        """Stop watching the partition."""
        self._ids.pop(partition, None)

    def suspect(self) -> None:
        """Check at once: some topic is unknown or unauthorized, librdkafka does not say which."""
        self._is_suspect = True
        self._due.set()

    async def check(self) -> None:
        """Compare the topics with the brokers now and report each error; without an answer nothing is reported."""
        async with self._checking:
            names = self._names()
            # The answer covers neither suspicions nor topics that are added while it is awaited.
            is_suspect, self._is_suspect = self._is_suspect, False
            try:
                self._compare(names, await self._topics.describe(names, TIMEOUT_S), is_suspect=is_suspect)
            except (Refused, Unreachable) as failure:
                self._is_suspect = self._is_suspect or is_suspect
                if isinstance(failure, Refused):
                    # The consumer reports errors of brokers and login.
                    with suppress(Unreachable):
                        await self._find_denied()

    def _names(self) -> list[str]:
        return sorted({each.topic for each in self._ids})

    async def _find_denied(self) -> None:
        """Report the unauthorized topics, asked one by one. A refused request for no topics is an error of the login instead."""
        if not await self._may_describe([]):
            return
        for name in self._names():
            if not await self._may_describe([name]):
                for partition in [each for each in self._ids if each.topic == name]:
                    self._on_error(partition, FetchError.DENIED)

    async def _may_describe(self, names: Sequence[str]) -> bool:
        try:
            await self._topics.describe(names, TIMEOUT_S)
        except Refused:
            return False
        return True

    def _compare(self, names: Collection[str], described: Mapping[str, Topic], *, is_suspect: bool) -> None:
        before, self._missing = self._missing, set()
        for partition, known in [each for each in self._ids.items() if each[0].topic in names]:
            found = described.get(partition.topic)
            if found is None or partition.number >= found.partitions:
                if is_suspect or partition in before:
                    self._on_error(partition, FetchError.UNKNOWN_TOPIC)
                else:
                    self._missing.add(partition)
            elif not known:
                self._ids[partition] = found.topic_id
            elif known != found.topic_id:
                self._on_error(partition, FetchError.OTHER_TOPIC)

    async def close(self) -> None:
        """Stop the checks and close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._topics.close()

    async def _check_periodically(self) -> None:
        while True:
            self._due.clear()
            if self._ids:
                await self.check()
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_S if self._missing else CHECK_INTERVAL_S):
                    await self._due.wait()


def _ended(task: "asyncio.Task[None]") -> None:
    """Raise an unexpected exception of the task in the loop's exception handler."""
    if not task.cancelled():
        task.result()
