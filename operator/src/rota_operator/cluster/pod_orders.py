"""
Orders to the sidecars of Deployments' pods: which are connected, and the loop that looks at their groups and sends what is due.

Called by `instance_orders` and `succession_orders`, which decide for static and for dynamic members.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet, key_of, news_or_round
from rota_operator.fleet.principal import Principal
from rota_operator.reconcile.instances import Holder


def holder_of(principal: Principal) -> Holder:
    """Return the pod of a sidecar."""
    return Holder(principal.sidecar.pod, principal.uid)


def connected_by_group(fleet: Fleet, groups: Iterable[Key]) -> Mapping[Key, Mapping[Holder, Principal]]:
    """Return the connected sidecars of these groups, by pod."""
    connected: dict[Key, dict[Holder, Principal]] = {key: {} for key in groups}
    for each in fleet.connected:
        if (key := key_of(each)) in connected:
            connected[key][holder_of(each)] = each
    return connected


async def send_orders(
    look: Callable[[], Awaitable[Sequence[Coroutine[Any, Any, None]]]], news: asyncio.Event
) -> None:
    """Send the orders that `look` returns until cancelled; look again at news, and once in a round."""
    async with asyncio.TaskGroup() as tasks:
        while True:
            news.clear()
            for order in await look():
                tasks.create_task(order)
            await news_or_round(news)
