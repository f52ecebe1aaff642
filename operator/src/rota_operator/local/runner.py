"""
Plays Kubernetes for a folder of manifests: a coordinator, and the replicas of every workload with their sidecars.

Called by the command line. Nothing is started before all manifests were looked at.
"""

import asyncio
import fcntl
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio

from rota_operator.local.commands import (
    Place,
    app_command,
    log_of,
    replica_name,
    secret_of,
    settings_of_group,
    sidecar_command,
)
from rota_operator.local.dashboard_state import Board
from rota_operator.local.fleet_server import LocalFleet, serving_fleet
from rota_operator.local.group_watches import GroupWatches, is_coordinated_here, missing_library
from rota_operator.local.offset_reset import Resetting
from rota_operator.local.processes import Command, Processes, Told
from rota_operator.local.replica_secrets import Replica, ReplicaSecrets
from rota_operator.local.workload import REPLICAS_MAX, RunningWorkload
from rota_operator.manifests.documents import BYTES_MAX, Document, InvalidManifest, decoded, documents
from rota_operator.manifests.resources import Group, Manifests, Workload, gather
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import Kind
from rota_operator.plan.settings import settings_of
from rota_operator.plan.supported import unsupported
from rota_operator.replicas.events import Again, Gone, Part, Rules, Undrained
from rota_operator.replicas.replica_set import ReplicaSet
from rota_operator.spec.model import ROTA
from rota_operator.spec.validation import Problem
from rota_service.private_files import FOLDER_MODE

SUFFIXES = (".yaml", ".yml")
COORDINATOR_GRACE_S = 10.0
# It starts beside us: it is looked for again at once.
CHANNEL = (("grpc.max_reconnect_backoff_ms", 200), ("grpc.enable_http_proxy", 0))
ANY_PORT = "127.0.0.1:0"
# Whoever may speak with the coordinator or the page may do everything: nobody beyond this machine can.
LOOPBACK = ("127.0.0.1", "localhost")
PORT_MAX = 65535
KAFKA = "kafka://"
BROKERS = re.compile(r"[^\s,:/]+:[0-9]+(,[^\s,:/]+:[0-9]+)*")


class CannotRun(Exception):
    """Nothing was started: one sentence."""


def load(paths: list[Path], *, on_kafka: bool = False) -> Manifests:
    """All manifests in these files and folders. Raises InvalidManifest, CannotRun."""
    found: list[Document] = []
    for file in _files(paths):
        try:
            with file.open("rb") as manifest:
                data = manifest.read(BYTES_MAX + 1)
        except OSError as error:
            raise CannotRun(
                f"cannot read {file} ({error.strerror}); check that it exists and is readable"
            ) from None
        found += documents(str(file), decoded(str(file), data))
    manifests = gather(found)
    wrong = [
        group.document.wrong(problem.path, problem.sentence)
        for group in manifests.groups.values()
        for problem in (*unsupported(group.spec), *_contradictions(group, manifests, on_kafka=on_kafka))
    ]
    if wrong:
        raise InvalidManifest(wrong)
    if not manifests.workloads:
        raise CannotRun("no workload to run; add a Deployment or a StatefulSet to the manifests")
    return manifests


def _contradictions(group: Group, manifests: Manifests, *, on_kafka: bool) -> Iterator[Problem]:
    """What cannot be where Kafka's brokers stand for Rota's servers, and what cannot be where they do not."""
    if on_kafka and group.spec.speaks_rota and group.spec.coordination == "Rota":
        wrong = (
            "must not be Rota with --kafka, which replaces Rota's servers by Kafka brokers; omit one of them"
        )
        yield Problem(("spec", "coordination"), wrong)
    elif not on_kafka and has_records_elsewhere(group):
        for other in manifests.groups.values():
            if other.spec.speaks_rota:
                wrong = (
                    f"must not be Rota over topics in Kafka while {'/'.join(other.name)} has its topics in Rota: one "
                    "coordinator supports only one of the two; run them separately, each with its own --home"
                )
                yield Problem(("spec", "coordination"), wrong)
                return


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        else:
            yield path


Tasks = Sequence["asyncio.Task[None]"]
# What goes on beside it, and looks at it.
Show = Callable[["Runner"], Coroutine[Any, Any, None]]


class Runner:
    """To be made on a running loop. Raises CannotRun."""

    def __init__(
        self, manifests: Manifests, place: Place, say: Callable[[str], None], wall_ms: Callable[[], int]
    ) -> None:
        if missing := missing_library(manifests.groups.values(), place):
            raise CannotRun(missing)
        self._manifests = manifests
        self.place = place
        self._say = say
        self._groups: dict[tuple[str, str, str], Group] = {
            (group.spec.scale_target_ref.kind, group.name.namespace, group.spec.scale_target_ref.name): group
            for group in manifests.groups.values()
            if group.spec.scale_target_ref is not None
        }
        self._coordinator = Processes(
            ReplicaSet(Rules(has_sidecar=False)), self._coordinator_command, self._told_of_coordinator
        )
        self.workloads = [self._of(workload) for workload in manifests.workloads.values()]
        overview = Overview(
            place.servers, [(group.group_id, "/".join(group.name)) for group in manifests.groups.values()]
        )
        self.board = Board(overview, lambda: [each.view() for each in self.workloads], wall_ms)

        self._secrets = ReplicaSecrets()
        self._fleet = LocalFleet(self._secrets.replica_of, self.board.report)
        suspended = {group.group_id for group in manifests.groups.values() if group.spec.suspend}
        self.reset = Resetting(
            self._fleet, self.board, self._replicas_of, lambda group_id: group_id in suspended
        ).reset

    async def run(self, ends: asyncio.Event, shows: Sequence[Show] = ()) -> None:
        """Until it ends, and then until everybody has; raises what nobody expected."""
        for group in self._manifests.groups.values():
            settings = settings_of_group(self.place, group)
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_bytes(settings_of(group.spec))
        async with serving_fleet(self._fleet) as address, self._channel() as channel:
            self.place = replace(self.place, fleet=address)
            groups = list(self._manifests.groups.values())
            if self._has_coordinator:
                self._coordinator.want(1)
            for workload in self.workloads:
                workload.start()
            watches = GroupWatches(self.place, channel, self.board, self._say)
            looking = [asyncio.ensure_future(watches.run(groups))]
            showing = [asyncio.ensure_future(show(self)) for show in shows]
            try:
                await self._run_until(ends, looking, showing)
            finally:
                await ended(showing)

    async def _run_until(self, ends: asyncio.Event, looking: Tasks, showing: Tasks) -> None:
        stopping = asyncio.ensure_future(ends.wait())
        broken = [self._coordinator.broken, *(each.processes.broken for each in self.workloads)]
        any_end: list[asyncio.Future[Any]] = [stopping, *broken, *looking, *showing]
        try:
            await asyncio.wait(any_end, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await asyncio.gather(*(each.processes.end() for each in self.workloads))
            # It waits for whoever still has a stream.
            await ended(looking)
            # Last: commits of those that end still go there.
            await self._coordinator.end()
            for each in (*broken, *looking, *showing):
                if each.done() and not each.cancelled():
                    each.result()
            for each in broken:
                each.cancel()

    async def coordinator_answers(self) -> None:
        """Return once the coordinator of this runner accepts connections; at once where there is none."""
        if self._has_coordinator:
            async with self._channel() as channel:
                await channel.channel_ready()

    def hurry(self) -> None:
        """Nobody wants to wait for those that end."""
        for workload in self.workloads:
            workload.processes.hurry()

    def scale(self, name: str, replicas: int) -> str:
        """Why not, in a sentence; empty: it is done. The name has its namespace, unless there is only one of that name."""
        found = [each for each in self.workloads if name in (each.name, each.short_name)]
        if len(found) != 1:
            what = "ambiguous workload name" if found else "unknown workload"
            return f'{what} "{name}"; expected one of {", ".join(each.name for each in self.workloads)}'
        if not 0 <= replicas <= REPLICAS_MAX:
            return f"replicas must be from 0 to {REPLICAS_MAX}; got {replicas}"
        (workload,) = found
        said = f"{workload.short_name} scaled from {workload.wanted} to {replicas} replicas"
        workload.scale(replicas)
        self._say(said)
        self.board.happened(workload.group_id, Kind.SCALE, said)
        return ""

    @property
    def _has_coordinator(self) -> bool:
        groups = self._manifests.groups.values()
        return not self.place.kafka or any(is_coordinated_here(group, self.place) for group in groups)

    def _channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.place.coordinator.removeprefix(ROTA), options=CHANNEL)

    def _replicas_of(self, group_id: str) -> Sequence[str]:
        return [
            replica.name
            for workload in self.workloads
            if workload.group_id == group_id
            for replica in workload.view().replicas
        ]

    def _of(self, workload: Workload) -> RunningWorkload:
        group = self._groups.get((workload.kind, *workload.name))

        def command(number: int, part: Part) -> Command:
            if part is Part.SIDECAR:
                assert group is not None, "whoever consumes for nobody has no sidecar"
                name = replica_name(workload, number)
                self._secrets.issue(Replica(name, group.group_id), secret_of(self.place, name))
                return sidecar_command(workload, group, number, self.place, free_address(ANY_PORT))
            return app_command(self._manifests, workload, group, number, self.place)

        return RunningWorkload(workload, group, command, self._told)

    def _told(self, workload: RunningWorkload, told: Told) -> None:
        replica = workload.replica(told.replica)
        if isinstance(told, Again):
            said = f"{replica}: {told.part.value} exited with code {told.code}; restarting"
            self._say(f"{said} (log: {log_of(self.place, replica, told.part.value)})")
            if told.part is Part.SIDECAR:
                # What it has said is true no more.
                self.board.gone(workload.group_id, replica)
        elif isinstance(told, Undrained):
            said = f"{replica}: stopping without a complete drain: {told.wrong}"
            self._say(said)
        else:
            said = f"{replica}: stopped"
            self._say(said)
            self.board.gone(workload.group_id, replica)
            self._secrets.revoke(Replica(replica, workload.group_id or ""))
        self.board.happened(workload.group_id, Kind.PROCESS, said)

    def _told_of_coordinator(self, told: Told) -> None:
        if isinstance(told, Again):
            log = self.place.home / "logs" / "coordinator.log"
            self._say(f"coordinator exited with code {told.code}; restarting (log: {log})")
        elif isinstance(told, Gone):
            self._say("coordinator: stopped")

    def _coordinator_command(self, number: int, part: Part) -> Command:
        home, address = self.place.home, self.place.coordinator.removeprefix(ROTA)
        argv = [
            str(self.place.python),
            "-m",
            "rota_coordinator",
            f"--store=sqlite:{home / 'coordinator.sqlite'}",
            f"--listen={address}",
            "--http-listen=127.0.0.1:0",
            # Here all members start within a moment.
            "--group-initial-rebalance-delay-ms=500",
            # With a log it would take offsets of the log's topics only.
            *(["--no-log"] if any(map(has_records_elsewhere, self._manifests.groups.values())) else []),
            "--log-format=json",
        ]
        return Command(argv, {}, home, home / "logs" / "coordinator.log", COORDINATOR_GRACE_S)


@contextmanager
def place_at(home: Path, listen: str, page: str, kafka: str = "") -> Iterator[Place]:
    """A folder of ours alone, and addresses. Raises CannotRun when it is somebody else's."""
    kafka = kafka.removeprefix(KAFKA)
    if kafka and not BROKERS.fullmatch(kafka):
        raise CannotRun(f"invalid --kafka {kafka}; expected HOST:PORT, comma-separated")
    home = home.absolute()
    home.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix="rota-") as sockets:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotRun(f"another runner uses {home}; stop it, or choose another --home") from None
        address = f"{ROTA}{free_address(listen)}"
        # Those of an earlier run name what does not answer any more.
        for name in ("address", "page"):
            (home / name).unlink(missing_ok=True)
        try:
            yield Place(
                Path(sys.executable), address, home, Path(sockets), page=free_address(page), kafka=kafka
            )
        finally:
            # Commands would ask for what has ended.
            (home / "page").unlink(missing_ok=True)


async def ended(tasks: Tasks) -> None:
    """None of them goes on."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def has_records_elsewhere(group: Group) -> bool:
    """Whether Rota coordinates it over records in Kafka."""
    return group.spec.coordination == "Rota" and not group.spec.speaks_rota


def publish(place: Place) -> None:
    """Write the files that name the servers and the page; called once both answer."""
    servers = f"{KAFKA}{place.kafka}" if place.kafka else place.coordinator
    write_whole(place.home / "address", f"{servers}\n")
    write_whole(place.home / "page", f"http://{place.page}\n")


def write_whole(file: Path, text: str) -> None:
    """Whoever waits for the file finds all of it."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(text)
    beside.replace(file)


def free_address(wanted: str) -> str:
    """The wanted one, unless somebody has it: then another port. Raises CannotRun."""
    host, _, port = wanted.rpartition(":")
    if host not in LOOPBACK or not port.isdecimal() or int(port) > PORT_MAX:
        raise CannotRun(f"{wanted} is not a loopback address; expected 127.0.0.1:PORT")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"
