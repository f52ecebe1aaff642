"""
Sends changed settings to the running sidecars of each group, as Fleet orders, beside the reconciles.

A plan names the settings of a group each time; a sidecar gets them once on each stream. Without an answer they are sent again while it is
connected; an error that it answers is shown in the group's status, and the settings are not sent again until they change.

Whether the members read is ordered from the others as well, by itself: a sidecar that was started with other settings, or refuses these,
may have read its file while the group was suspended, and a rollout that would replace its pod may not end.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from google.protobuf.json_format import Parse

from rota_operator.cluster.queues import Key
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.settings_pb2 import GroupSettings

ROUND_S = 1.0
ANSWER_S = 10.0
ORDERS_AT_A_TIME = 50


class Wanted(NamedTuple):
    """The settings of a group, as JSON, and the hash of those that only a restart applies."""

    settings: str
    settings_hash: str
    # The operator orders dynamic members to join.
    orders_join: bool = False

    @property
    def suspend(self) -> bool:
        """True if the settings suspend the members."""
        return bool(json.loads(self.settings).get("suspend", False))


class RefusedSettings(NamedTuple):
    """Settings that a sidecar has answered with an error."""

    key: Key
    settings: str
    error: str


class Fleet(Protocol):
    """Part of `fleet.server.FleetServer`."""

    @property
    def connected(self) -> Sequence[Principal]:
        """The sidecars that have a stream now."""
        ...

    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        """Send an order and wait for its answer; without one, an answer without an id says why."""
        ...


# Of a pod and its uid: a successor of the same name gets the settings anew.
Pod = tuple[SidecarRef, str]


class SettingsOrders:
    """
    Settings by ConsumerGroup, and who has them; thread-confined to one event loop.

    Sidecars that were started with another hash than the plan's get no settings: a rollout is about to replace their pods.
    """

    def __init__(
        self, fleet: Fleet, warn: Callable[[str], None], is_resetting: Callable[[Key], bool]
    ) -> None:
        """`is_resetting`: offsets of the group are reset, and the reset suspends and resumes its members."""
        self._fleet = fleet
        self._warn = warn
        self._is_resetting = is_resetting
        self._wanted: dict[Key, Wanted] = {}
        # Of connected sidecars: the settings that they answered, and the hash that they report.
        self._answered: dict[Pod, str] = {}
        # Sidecars that have settings to answer, each on the stream that it has now.
        self._asked: set[Pod] = set()
        # Of connected sidecars whose last answer was an error.
        self._refused: dict[Pod, RefusedSettings] = {}
        self._started_with: dict[Pod, str] = {}
        # Sidecars that have not reported on their present stream.
        self._opened: set[Pod] = set()
        self._news = asyncio.Event()
        # Whether connected sidecars report that they are suspended.
        self._suspended: dict[Pod, bool] = {}

    def configure(self, key: Key, settings: str, settings_hash: str, *, orders_join: bool = False) -> None:
        """Send settings to the group's sidecars in the background, to each once on each stream."""
        wanted = Wanted(settings, settings_hash, orders_join)
        if self._wanted.get(key) != wanted:
            self._wanted[key] = wanted
            self._news.set()

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        self._wanted.pop(key, None)

    def reported(self, principal: Principal, report: pb.SidecarReport) -> None:
        """Note the hash of the settings that a sidecar was started with, and whether it is suspended."""
        pod = principal.sidecar, principal.uid
        self._started_with[pod] = report.settings_hash
        self._suspended[pod] = report.member.suspended
        if pod in self._opened:
            # A member that is to join waits for this.
            self._opened.discard(pod)
            self._news.set()

    def opened(self, principal: Principal) -> None:
        """Send the settings again on a new stream: a container that has restarted begins with its file, which may be older."""
        pod = principal.sidecar, principal.uid
        self._answered.pop(pod, None)
        self._asked.discard(pod)
        self._opened.add(pod)

    def refusals(self, key: Key) -> Mapping[str, str]:
        """Return why connected sidecars of a group refuse its present settings, by the name of the pod."""
        wanted = self._wanted.get(key)
        return {
            sidecar.pod: each.error
            for (sidecar, _), each in self._refused.items()
            if wanted is not None and (each.key, each.settings) == (key, wanted.settings)
        }

    async def run(self) -> None:
        """Send settings until cancelled."""
        while True:
            self._news.clear()
            await self.send()
            await news_or_round(self._news)

    async def send(self) -> None:
        """Send the settings once to each connected sidecar that has not answered them, and suspension to the others."""
        connected = {(each.sidecar, each.uid): each for each in self._fleet.connected}
        self._answered = {pod: text for pod, text in self._answered.items() if pod in connected}
        self._started_with = {pod: text for pod, text in self._started_with.items() if pod in connected}
        self._refused = {pod: each for pod, each in self._refused.items() if pod in connected}
        self._suspended = {pod: each for pod, each in self._suspended.items() if pod in connected}
        self._opened &= connected.keys()
        left = [
            (principal, wanted)
            for pod, principal in connected.items()
            if (wanted := self._wanted.get(key_of(principal))) is not None
            and self._answered.get(pod) != wanted.settings
            and self._started_with.get(pod) == wanted.settings_hash
        ]
        await _in_batches(self._configure, left)
        others = [
            (principal, wanted)
            for pod, principal in connected.items()
            if (wanted := self._wanted.get(key_of(principal))) is not None and self._is_outdated(pod, wanted)
        ]
        await _in_batches(self._suspend, others)

    def _is_outdated(self, pod: Pod, wanted: Wanted) -> bool:
        """Return whether a sidecar that does not take these settings is suspended, or reads, other than they say."""
        refused = self._refused.get(pod)
        is_left_out = pod in self._started_with and self._started_with[pod] != wanted.settings_hash
        has_refused = refused is not None and refused.settings == wanted.settings
        return (is_left_out or has_refused) and self._suspended.get(pod, wanted.suspend) != wanted.suspend

    async def _suspend(self, principal: Principal, wanted: Wanted) -> None:
        """Send a sidecar Suspend or Resume, as the settings say."""
        if self._is_resetting(key_of(principal)):
            return
        order = (
            pb.SidecarOrder(suspend=pb.Suspend()) if wanted.suspend else pb.SidecarOrder(resume=pb.Resume())
        )
        # Without an answer, or with an error, its next report says the same, and the order is sent again.
        await self._fleet.order(principal.sidecar, order, ANSWER_S)

    async def _configure(self, principal: Principal, wanted: Wanted) -> None:
        settings = Parse(wanted.settings, GroupSettings())
        order = pb.SidecarOrder(
            configure=pb.Configure(settings=settings, orders_hand_over=True, orders_join=wanted.orders_join)
        )
        pod = principal.sidecar, principal.uid
        self._asked.add(pod)
        answer = await self._fleet.order(principal.sidecar, order, ANSWER_S)
        is_of_this_stream = pod in self._asked
        self._asked.discard(pod)
        if not answer.order_id or not is_of_this_stream:
            return
        self._answered[pod] = wanted.settings
        self._refused.pop(pod, None)
        if answer.error:
            self._refused[pod] = RefusedSettings(key_of(principal), wanted.settings, answer.error)
            self._warn(f"{principal.sidecar.pod} of {principal.group} refuses new settings: {answer.error}")


async def _in_batches(
    send: Callable[[Principal, Wanted], Awaitable[None]], orders: Sequence[tuple[Principal, Wanted]]
) -> None:
    """Send orders, ORDERS_AT_A_TIME side by side."""
    for first in range(0, len(orders), ORDERS_AT_A_TIME):
        await asyncio.gather(*(send(*each) for each in orders[first : first + ORDERS_AT_A_TIME]))


async def news_or_round(news: asyncio.Event) -> None:
    """Return at news, and after a round without any."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ROUND_S):
            await news.wait()


def key_of(principal: Principal) -> Key:
    """Return the ConsumerGroup of a sidecar."""
    namespace, _, name = principal.group.partition("/")
    return Key(namespace, name)
