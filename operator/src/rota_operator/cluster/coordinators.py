"""
The coordinator of a watched group, among those that share a store with the one at the ConsumerGroup's address.

Calls are made for the namespace of the ConsumerGroup, so that none has the operator's rights to groups of other namespaces.
"""

from collections.abc import Callable

import grpc.aio
from typing_extensions import override

from rota_operator.cluster.channels import Channels
from rota_operator.engines.coordinators import GroupCoordinator, Metadata, find_coordinator
from rota_service.pod_tokens import NAMESPACE_METADATA


class FollowedCoordinator(GroupCoordinator):
    """
    Follows one group from coordinator to coordinator.

    Invariant: it has taken the channel to its address and, while `_found` is not empty, the channel to that one.
    """

    def __init__(
        self,
        channels: Channels,
        address: str,
        group_id: str,
        namespace: str,
        close_released: Callable[[], None],
    ) -> None:
        """`close_released`: closes the channels that are in use no longer, some time later."""
        self._channels = channels
        self._address = address
        self._group_id = group_id
        self._namespace = namespace
        self._close_released = close_released
        self._bootstrap = channels.get(address)
        self._found = ""
        self._channel = self._bootstrap

    @property
    def bootstrap(self) -> grpc.aio.Channel:
        """Channel to the configured address."""
        return self._bootstrap

    @property
    @override
    def channel(self) -> grpc.aio.Channel:
        return self._channel

    @property
    @override
    def metadata(self) -> Metadata:
        return ((NAMESPACE_METADATA, self._namespace),)

    @override
    async def find(self) -> None:
        found = await find_coordinator(self._bootstrap, self._group_id, self.metadata)
        if found != self._found:
            self.forget()
            self._found, self._channel = found, self._channels.get(found)

    @override
    def forget(self) -> None:
        found, self._found, self._channel = self._found, "", self._bootstrap
        if found and self._channels.release(found):
            self._close_released()

    def renew(self) -> None:
        """Take channels anew, after `Channels.renew` has released them all."""
        self._bootstrap = self._channels.get(self._address)
        self._channel = self._channels.get(self._found) if self._found else self._bootstrap

    def release(self) -> bool:
        """Give all channels back; returns True if the one to the configured address has no other user."""
        self.forget()
        return self._channels.release(self._address)
