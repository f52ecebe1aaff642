"""
A PostgreSQL server for one test, for a run of tests, or for a person.

`running` is the one way to have one; the fixtures and the command are thin layers over it.
"""

import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from tests.support.certificates import Issued
from tests.support.network import HERE, LOOPBACK, Network, NetworkNamespace
from tests.support.ports import free_port
from tests.support.postgres.programs import Programs, prepare
from tests.support.processes import Process, ProcessFailed, current_owner
from tests.support.workdir import logs, workdir

USER = "rota"
PASSWORD = "rota-password"
READY_S = 30
GONE_S = 10


class Postgres:
    """One server; it can be started again after `kill` and `stop`, with its data."""

    def __init__(
        self,
        data: Path,
        *,
        namespace: NetworkNamespace,
        port: int,
        log: Path,
        settings: Mapping[str, str | Path],
    ) -> None:
        self.log = log
        self._data = data
        self._namespace = namespace
        self._port = port
        self._settings = settings
        self._process: Process | None = None
        self._owner = current_owner()

    @property
    def dsn(self) -> str:
        """DSN for clients on this machine."""
        return _dsn(HERE.address, self._port)

    @property
    def dsn_for_pods(self) -> str:
        """DSN for pods of the cluster in whose network it runs."""
        return _dsn(self._namespace.address, self._port)

    @property
    def pid(self) -> int:
        return self._running().pid

    def new_database(self, name: str) -> str:
        """Create an empty database; gives how to connect to it."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return _dsn(HERE.address, self._port, name)

    def start(self) -> None:
        """Start it; returns when it answers."""
        programs = prepare()
        command: list[str | Path] = [
            *self._namespace.enter,
            *programs.as_ordinary_user,
            # Entering a user namespace drops the wish of `Process` to be killed with its parent. SIGQUIT is better
            # anyhow: the server ends at once, and takes its shared memory with it.
            *("setpriv", "--pdeathsig", "QUIT", "--"),
            programs.path("postgres"),
            *("-D", self._data, "-h", self._namespace.address, "-p", str(self._port)),
            *("-c", "unix_socket_directories="),
            *(f"--{name}={value}" for name, value in self._settings.items()),
        ]
        self._process = Process.start(
            "PostgreSQL", command, log=self.log, env=programs.environment, owner=self._owner
        )
        self._process.wait_until(self._answers, within_s=READY_S)

    def wait_for_standby(self) -> None:
        """Let every commit wait for a standby; returns when one follows as that."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")

            def follows() -> bool:
                found = connection.execute("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")
                return found.rowcount == 1

            self._running().wait_until(follows, within_s=READY_S)

    def promote(self) -> None:
        """Make a standby take writes; returns when it does."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def stop(self) -> None:
        """End it in good order, without waiting for its clients."""
        self._running().stop(first=signal.SIGINT)

    def kill(self) -> None:
        """End it at once, as a crash would; returns when its own children have noticed and are gone, too."""
        server = self._running()
        with ExitStack() as watched:
            children = []
            for pid in _children(server.pid):
                children.append(os.pidfd_open(pid))
                watched.callback(os.close, children[-1])
            server.kill()
            for child in children:
                if not select.select([child], [], [], GONE_S)[0]:
                    raise ProcessFailed(f"PostgreSQL was killed, but a child runs on after {GONE_S} s")

    def end(self) -> None:
        """Stop it if it runs, and remove what a killed one left in the kernel."""
        if self._process is not None:
            self.stop()
            _remove_shared_memory(self._data)

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("this PostgreSQL was never started: call start first")
        return self._process

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:  # nobody listens yet, or it says that it is starting up
            return False
        return True


@contextmanager
def running(
    *, durable: bool = False, network: Network = LOOPBACK, tls: Issued | None = None
) -> Iterator[Postgres]:
    """
    A new, empty server; it ends with the block, and with this process.

    Without `durable` it leaves writing to the disk to the kernel: what was committed survives the end of the
    server, though not of the machine. With `tls` it shows that certificate, and refuses plain text.
    """
    programs = prepare()
    namespace, port = network.namespace(), free_port()
    with workdir("postgres") as folder, network.forward(namespace.address, port, listen=port):
        data = folder / "data"
        _initialize(programs, data, folder / "password", "hostssl" if tls else "host")
        settings: dict[str, str | Path] = {"fsync": "on" if durable else "off"}
        if tls is not None:
            tls.key.chmod(0o600)
            settings |= {"ssl": "on", "ssl_cert_file": tls.certificate, "ssl_key_file": tls.key}
        log = logs(folder) / "postgres.log"
        server = Postgres(data, namespace=namespace, port=port, log=log, settings=settings)
        try:
            server.start()
            yield server
        finally:
            server.end()


@contextmanager
def standby_of(primary: Postgres) -> Iterator[Postgres]:
    """A server that follows `primary`, which waits for it with every commit as soon as it follows; ends with the block."""
    programs, port = prepare(), free_port()
    with workdir("postgres") as folder:
        data = folder / "data"
        _run(
            programs,
            "pg_basebackup",
            "--dbname",
            primary.dsn,
            "-D",
            data,
            "-R",
            "--checkpoint=fast",
            "--no-sync",
        )
        log = logs(folder) / "standby.log"
        standby = Postgres(data, namespace=HERE, port=port, log=log, settings={"fsync": "off"})
        try:
            standby.start()
            primary.wait_for_standby()
            yield standby
        finally:
            standby.end()


def _initialize(programs: Programs, data: Path, password: Path, connections: str) -> None:
    password.write_text(PASSWORD)
    _run(
        programs,
        *("initdb", "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"),
        *(f"--username={USER}", f"--pwfile={password}", data),
    )
    # Pods connect from other addresses than 127.0.0.1. Where it listens is what keeps strangers out.
    (data / "pg_hba.conf").write_text(
        f"{connections} all all all scram-sha-256\n{connections} replication all all scram-sha-256\n"
    )


def _run(programs: Programs, name: str, *arguments: str | Path) -> None:
    done = subprocess.run(
        [*programs.as_ordinary_user, programs.path(name), *arguments],
        env={**os.environ, **programs.environment},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise ProcessFailed(f"{name} ended with code {done.returncode}: {done.stderr.strip()}")


def _dsn(address: str, port: int, database: str = "postgres") -> str:
    return f"postgresql://{USER}:{PASSWORD}@{address}:{port}/{database}"


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _remove_shared_memory(data: Path) -> None:
    # A server that ended in good order has removed both the segment and the file that names it.
    notes = data / "postmaster.pid"
    if notes.exists():
        _key, segment = notes.read_text().splitlines()[6].split()
        subprocess.run(["ipcrm", "--shmem-id", segment], check=True)
