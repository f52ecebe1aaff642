"""A laptop's runner, started with an open umask and few file descriptors: what it keeps is private, and its processes come back."""

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISSOCK

import pytest

from tests.operator.local.laptop import RECORDS, WITHIN_S, Laptop
from tests.support.processes import Process
from tests.support.web import post

pytestmark = pytest.mark.process

SOCKET = re.compile(r"--(?:listen|drain)-socket=(\S+)")
DESCRIPTORS = 256
IDLE_CONNECTIONS = 361
# The shell's words, then the runner's own command.
CONSTRAINED = ("sh", "-c", f'umask 000; ulimit -n {DESCRIPTORS}; exec "$@"', "runner")


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laptop, Process]]:
    """Three members that have read all; in the home of an earlier runner, which others could read."""
    laptop = Laptop(tmp_path_factory.mktemp("laptop"))
    # Made anew by the application, as the user has it.
    laptop.notes.unlink()
    log = laptop.home / "logs" / "orders-0.app.log"
    log.parent.mkdir(parents=True)
    log.touch()
    for path, mode in ((log, 0o666), (log.parent, 0o777), (laptop.home, 0o777)):
        path.chmod(mode)
    process = laptop.start(*CONSTRAINED)
    laptop.fill(process, RECORDS)
    process.wait_until(laptop.notes.exists, within_s=WITHIN_S)
    process.wait_until(lambda: laptop.all_are_done(RECORDS), within_s=WITHIN_S)
    process.wait_until(lambda: len(laptop.owners()) == 3, within_s=WITHIN_S)
    yield laptop, process
    process.stop()


def modes_below(folder: Path) -> dict[str, int]:
    """Of the folder and all in it, as far as it still is there when it is looked at."""
    modes = {}
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            modes[str(path.relative_to(folder))] = path.lstat().st_mode
    return modes


def test_files_are_for_their_user_alone_whatever_the_umask(laptop: tuple[Laptop, Process]) -> None:
    home = laptop[0].home
    commands = " ".join(laptop[0].processes().values())
    sockets = set(map(Path, SOCKET.findall(commands)))
    assert len(sockets) == 6
    folders = (home, *{socket.parent for socket in sockets})
    modes = {folder: modes_below(folder) for folder in folders}
    found = {name for below in modes.values() for name in below}
    assert found >= {
        "coordinator.sqlite", "coordinator.sqlite-wal", "coordinator.sqlite-shm", "lock", "address", "page",
        "logs/coordinator.log", "logs/orders-0.app.log", "logs/orders-0.app.pid", "logs/orders-0.sidecar.log",
        "settings/shop.orders.json", "state/orders-0/member.json", "state/orders-0/member.lock",
    }  # fmt: skip
    # Each sidecar has one more, with frames.
    assert sum(S_ISSOCK(mode) for below in modes.values() for mode in below.values()) == 9
    wrong = {
        f"{folder}/{name}": oct(S_IMODE(mode))
        for folder, below in modes.items()
        for name, mode in below.items()
        if S_IMODE(mode) != (0o700 if S_ISDIR(mode) else 0o600)
    }
    assert wrong == {}


def test_an_application_has_the_user_s_own_umask(laptop: tuple[Laptop, Process]) -> None:
    assert S_IMODE(laptop[0].notes.stat().st_mode) == 0o666


@pytest.mark.parametrize("replicas", [2**70, -1, 101])
def test_the_page_scales_to_a_hundred_replicas_and_no_further(
    laptop: tuple[Laptop, Process], replicas: int
) -> None:
    answer = post(laptop[0].page, "/api/scale", {"workload": "orders", "replicas": replicas})
    assert (answer.status, json.loads(answer.page)) == (
        400,
        {"error": f"replicas must be from 0 to 100; got {replicas}"},
    )


def test_idle_connections_to_the_page_keep_no_process_from_its_restart(
    laptop: tuple[Laptop, Process],
) -> None:
    home, process = laptop[0].home, laptop[1]
    pid_file = home / "logs" / "orders-0.sidecar.pid"
    before = int(pid_file.read_text())
    host, _, port = laptop[0].page.rpartition(":")
    with ExitStack() as idle:
        for _ in range(IDLE_CONNECTIONS):
            idle.enter_context(socket.create_connection((host, int(port)), timeout=WITHIN_S))
        os.kill(before, signal.SIGKILL)
        process.wait_until(lambda: read_pid(pid_file) not in (0, before), within_s=WITHIN_S)
        process.wait_until(lambda: len(laptop[0].owners()) == 3, within_s=WITHIN_S)


def read_pid(path: Path) -> int:
    """Read a pid; 0 while the file is written anew."""
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0
