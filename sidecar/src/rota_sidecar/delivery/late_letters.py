"""Dead letters, whose connection is made when there is one: most sidecars never write any. Used by `serving`."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from rota_sidecar.engines.records import Letter, Letters


class LateLetters(Letters):
    """Nothing is loaded or connected before the first letter."""

    def __init__(self, connect: Callable[[], Letters]) -> None:
        self._connect = connect
        self._letters: Letters | None = None

    @override
    async def write(self, letters: Sequence[Letter], within_s: float) -> None:
        if self._letters is None:
            self._letters = self._connect()
        await self._letters.write(letters, within_s)

    @override
    async def close(self) -> None:
        if self._letters is not None:
            await self._letters.close()
