"""
Handlers of kopf: events of ConsumerGroups and of what belongs to them become keys in the queue.

kopf watches, reconnects and lists anew; it writes nothing: only event handlers, no finalizers, no annotations, no peering, no Events
of its own. The registry is our own, so that nothing else that is imported adds handlers to this operator.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import aiohttp
import kopf
from kopf._cogs.clients.errors import APIError, APIForbiddenError
from kopf._cogs.clients.watching import WatchingError
from kopf._cogs.structs.credentials import Vault
from kopf._core.engines.peering import Identity
from typing_extensions import override

from rota_operator.cluster.index import ResourceIndex, key_of
from rota_operator.cluster.kinds import CONSUMER_GROUP, ResourceKind
from rota_operator.cluster.owned_index import OWNED_KINDS, OwnedIndex
from rota_operator.cluster.queues import Key
from rota_operator.reconcile.actions import CLAIM_LABEL

DELETED = "DELETED"
# Type of the event of an object in a list: what was deleted since the last event before it is not reported.
LISTED = None
# Seconds. The API server ends a watch after this time; kopf goes on where it was.
SERVER_TIMEOUT_S = 300
# The API server sends a bookmark every minute, so a watch that is silent for longer is opened again: a lost connection hides changes
# for no longer than this.
SILENCE_S = 70
# Between the end of the first of kopf's tasks and the next cancellation of those that go on; kopf itself waits for 5 s.
ENDING_S = 10
CONNECT_TIMEOUT_S = 10
# Of a list of all objects of one kind.
LIST_TIMEOUT_S = 20
# Between the attempts of one request of kopf, at most: five minutes of answers that may pass by themselves, then the watch has failed.
BACKOFFS_S = (1, 2, 4, 8, *(10,) * 28)
# A share of each, so that watches of several kinds are not all opened at once.
JITTER = 0.5
WORKERS_MAX = 16
# For the next event of an object, until its task ends: a thousand objects must not keep others waiting for a worker.
IDLE_S = 0.1
IDENTITY = "rota-operator"
MESSAGE_LENGTH_MAX = 300


class WatchFailed(Exception):
    """The API server's answer to a watch cannot be gone on from; the watches have to begin anew, with lists."""


class Enqueue(Protocol):
    """Takes ConsumerGroups to reconcile."""

    def __call__(self, key: Key, *, is_own: bool) -> bool:
        """Add a ConsumerGroup that has changed itself, or whose objects have; returns False if there is no room."""
        ...


class JitteredBackoffs(Sequence[float]):
    """BACKOFFS_S in seconds, each drawn anew between a share of it and all of it."""

    @override
    def __len__(self) -> int:
        return len(BACKOFFS_S)

    @override
    def __getitem__(self, index: Any) -> Any:
        return BACKOFFS_S[index]

    @override
    def __iter__(self) -> Iterator[float]:
        return (each * random.uniform(1 - JITTER, 1) for each in BACKOFFS_S)


class NoDiffs(kopf.DiffBaseStorage):
    """Keeps no former states of objects: only handlers of changes need them, and they cost more than ours of events."""

    @override
    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    @override
    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    @override
    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        return


class Handlers:
    """Handlers for one term of a leader; `note` takes the version of each object that a watch has shown."""

    def __init__(
        self,
        index: ResourceIndex,
        enqueue: Enqueue,
        note: Callable[[ResourceKind, str], None],
        warn: Callable[[str], None],
        owned: OwnedIndex,
    ) -> None:
        self._index = index
        self._owned = owned
        self._enqueue = enqueue
        self._note = note
        self._warn = warn

    async def on_group(self, type: str | None, body: Mapping[str, Any], **_: object) -> None:
        """Take a ConsumerGroup over into the index; reconcile it, and those that it stood in the way of. An older body is ignored."""
        key = key_of(body)
        self._note(CONSUMER_GROUP, body["metadata"]["resourceVersion"])
        was = self._index.claim(key)
        if type == DELETED:
            self._index.remove(body)
            changed = True
        else:
            changed = self._index.update(body)
        if not changed:
            return
        self._add(key, is_own=True)
        if was is not None and was != self._index.claim(key):
            for rival in self._index.rivals(was):
                self._add(Key(rival.namespace, rival.name), is_own=True)

    async def on_owned(
        self, of: ResourceKind, /, type: str | None, body: Mapping[str, Any], **_: object
    ) -> None:
        """Take an object over into the index, and reconcile the ConsumerGroup whose label it carries."""
        self._note(of, body["metadata"]["resourceVersion"])
        if type is LISTED:
            self._owned.listed()
        if type == DELETED:
            self._owned.remove(of, body)
        else:
            self._owned.take(of, body)
        uid = (body["metadata"].get("labels") or {}).get(CLAIM_LABEL, "")
        if (key := self._index.key_of_uid(uid)) is not None:
            self._add(key, is_own=False)

    def _add(self, key: Key, *, is_own: bool) -> None:
        if not self._enqueue(key, is_own=is_own):
            self._warn(
                f"too many ConsumerGroups wait; {key.namespace}/{key.name} is reconciled at the next resync"
            )


def registry_of(
    handlers: Handlers, login: Callable[..., Awaitable[kopf.ConnectionInfo]]
) -> kopf.OperatorRegistry:
    """Return a registry with our handlers alone."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)
    kopf.on.event(*resource_of(CONSUMER_GROUP), registry=registry)(handlers.on_group)
    for kind in OWNED_KINDS:
        kopf.on.event(*resource_of(kind), labels={CLAIM_LABEL: kopf.PRESENT}, registry=registry)(
            partial(handlers.on_owned, kind)
        )
    return registry


def settings_of(namespaces: Collection[str]) -> kopf.OperatorSettings:
    """Return kopf's settings."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.peering.standalone = True
    # Of a namespaced operator, which may have no rights beyond its namespaces.
    settings.scanning.disabled = bool(namespaces)
    settings.watching.server_timeout = SERVER_TIMEOUT_S
    settings.watching.inactivity_timeout = SILENCE_S
    settings.watching.connect_timeout = CONNECT_TIMEOUT_S
    settings.networking.connect_timeout = CONNECT_TIMEOUT_S
    settings.networking.request_timeout = LIST_TIMEOUT_S
    settings.networking.error_backoffs = JitteredBackoffs()
    settings.queueing.worker_limit = WORKERS_MAX
    settings.queueing.idle_timeout = IDLE_S
    settings.persistence.diffbase_storage = NoDiffs()
    for kind in OWNED_KINDS:
        settings.watching.label_selectors[resource_of(kind)] = CLAIM_LABEL
    return settings


def resource_of(kind: ResourceKind) -> tuple[str, str, str]:
    """Return group, version and plural, as kopf names a resource."""
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural


async def watch(
    registry: kopf.OperatorRegistry,
    namespaces: Collection[str],
    stop: asyncio.Event,
    take_signals: Callable[[], None],
) -> None:
    """
    Run kopf until `stop` is set; it cancels every task that was started meanwhile, so all others end before.

    kopf has set its own signal handlers by the time `take_signals` is called, which sets those of the process again. Raises
    WatchFailed where kopf gives up; a right that is missing is raised as it is.
    """
    others, vault = asyncio.all_tasks(), Vault()
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings_of(namespaces),
        # Of peering, which is not used; kopf's default is the user's name, and a container's user may have none.
        identity=Identity(IDENTITY),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        vault=vault,
        stop_flag=stop,
    )
    take_signals()
    try:
        await _run(tasks, others)
    except APIForbiddenError:
        raise
    except (APIError, WatchingError, aiohttp.ClientError, TimeoutError, ValueError) as error:
        said = str(error) or type(error).__name__
        raise WatchFailed(f"the API server cannot be watched: {said[:MESSAGE_LENGTH_MAX]}") from None
    finally:
        # kopf closes its connections before its last tasks have ended, and those may have opened others.
        await vault.close()


async def _run(tasks: Collection[asyncio.Task[None]], others: Collection[asyncio.Task[Any]]) -> None:
    """
    Run kopf's tasks to their end.

    kopf cancels its tasks once and waits for them. A watch that waits for an answer just then takes that for a pause of its own, and
    begins anew (`kopf._cogs.clients.api.stream`, 1.45): what goes on is cancelled again.
    """
    running = asyncio.create_task(kopf.run_tasks(tasks, ignored=others))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        running.cancel()
        raise
    finally:
        await _end(running, others)
    await running


async def _end(running: asyncio.Task[None], others: Collection[asyncio.Task[Any]]) -> None:
    """Wait until kopf has ended, also when cancelled meanwhile: what it cancels in the end could be tasks of the next term."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            done, _ = await asyncio.wait({running}, timeout=ENDING_S)
        except asyncio.CancelledError as error:
            cancelled = error
            running.cancel()
            continue
        if not done:
            for left in asyncio.all_tasks().difference(others, {running}):
                left.cancel()
    if cancelled is not None:
        if not running.cancelled():
            running.exception()
        raise cancelled
