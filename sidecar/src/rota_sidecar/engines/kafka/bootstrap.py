"""The bootstrap servers: a request goes to the first one that answers. Used to find the coordinator and to describe topics."""

import asyncio
from collections.abc import Sequence

from kafka.protocol.api_message import ApiMessage

from rota_sidecar.engines.kafka import failures
from rota_sidecar.engines.kafka.connection import Connection, connect
from rota_sidecar.engines.kafka.failures import Failure
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings
from rota_sidecar.engines.port import Refused, Unreachable


class Bootstrap:
    """
    Invariant: the broker that answered last is the first one to be asked.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._addresses = list(settings.addresses)

    async def ask(
        self, message: ApiMessage, within_s: float, beside: Sequence[Address] = ()
    ) -> tuple[ApiMessage, Connection]:
        """
        Return a response and its connection, which the caller closes. Brokers in `beside` are asked after all others.

        Each broker gets an equal share of `within_s`, so that a silent one leaves time for the next. Raises Unreachable,
        Refused.
        """
        candidates = list(dict.fromkeys([*self._addresses, *beside]))
        wrong: list[Failure] = []
        for address in candidates:
            try:
                answered = await self._ask_one(address, message, within_s / len(candidates))
            except (Unreachable, Refused) as failure:
                wrong.append(failure)
                continue
            if address in self._addresses:
                self._addresses.remove(address)
                self._addresses.insert(0, address)
            return answered
        raise _all_of(wrong)

    async def _ask_one(
        self, address: Address, message: ApiMessage, within_s: float
    ) -> tuple[ApiMessage, Connection]:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(within_s):
                connection = await connect(address, self._settings, within_s)
                return await connection.ask(message, within_s), connection
        except BaseException as error:
            if connection is not None:
                await connection.close()
            if isinstance(error, TimeoutError):
                raise failures.silent(address, within_s) from None
            raise


def _all_of(wrong: Sequence[Failure]) -> Failure:
    """Return one failure for those of all brokers; a refusal says more than a timeout."""
    refusals = [failure for failure in wrong if isinstance(failure, Refused)]
    first = (refusals or wrong)[0]
    if len(wrong) == 1 or refusals:
        return failures.again(first)
    return Unreachable(f"none of {len(wrong)} Kafka brokers answers; the first one: {first}")
