"""
Whether the topics that are read are still those that the reading began with. For `reading.py`.

librdkafka reads on in a topic that was made anew under the same name, and does not say which topic it misses: so the
brokers are asked for the ids, at first, then once in a while, and at once when something looks wrong.
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
    """To be made and used on a running loop."""

    def __init__(self, settings: KafkaSettings, on_error: OnTopicError) -> None:
        self._topics = KafkaTopics(settings)
        self._on_error = on_error
        # Empty: not known yet.
        self._ids: dict[Partition, bytes] = {}
        self._due = asyncio.Event()
        # Whether somebody says that a topic is missing.
        self._is_suspect = False
        # Not there in one look: the broker that was asked may not know of them yet.
        self._missing: set[Partition] = set()
        self._checking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def watch(self, partition: Partition) -> None:
        """From now on, until it is forgotten."""
        if partition in self._ids:
            return
        self._ids[partition] = b""
        self._due.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._check_periodically())
            self._task.add_done_callback(_ended)

    def forget(self, partition: Partition) -> None:
        """It is not read any more."""
        self._ids.pop(partition, None)

    def suspect(self) -> None:
        """Some topic is missing, or is not for us: it is not known which."""
        self._is_suspect = True
        self._due.set()

    async def check(self) -> None:
        """Compare now; whoever is not there any more is told of. When nobody answers, nothing is known."""
        async with self._checking:
            names = self._names()
            # The answer says nothing of doubts and topics that come while it is waited for.
            is_suspect, self._is_suspect = self._is_suspect, False
            try:
                self._compare(names, await self._topics.describe(names, TIMEOUT_S), is_suspect=is_suspect)
            except (Refused, Unreachable) as failure:
                self._is_suspect = self._is_suspect or is_suspect
                if isinstance(failure, Refused):
                    # The reading itself says what is wrong with the brokers, or with the login.
                    with suppress(Unreachable):
                        await self._find_denied()

    def _names(self) -> list[str]:
        return sorted({each.topic for each in self._ids})

    async def _find_denied(self) -> None:
        """Topics that are asked for together are refused together; without any of them it is about the login."""
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
        """End its connection."""
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
    """What nobody expected goes to the loop's handler."""
    if not task.cancelled():
        task.result()
