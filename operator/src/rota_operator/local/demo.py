"""
What runs when no manifests are named: the orders example, with hints what to try, or without anybody who looks.

Without anybody it does by itself what the hints say, for some seconds, counts what was sold and what has its price, and says
in one line whether all is well.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rota_operator.local.commands import Place
from rota_operator.local.runner import CannotRun, Runner
from rota_operator.local.workload import RunningWorkload
from rota_operator.overview.view import GroupView, MemberView

# In a checkout the example is what its tests run; an installed package carries a copy of it.
PLACES = (
    Path(__file__).parents[4] / "examples" / "orders",
    Path(__file__).parent / "orders",
)
CONSUMER, SHOP = "orders-enricher", "orders-shop"
MEMBERS, MORE_MEMBERS, FEWER_MEMBERS = 3, 5, 2
VICTIM = 1
# Its application, and its sidecar.
PARTS = 2
# For each thing that is waited for.
PATIENCE_S = 60.0
HINTS = """\
Try in another terminal:
  kill a member     kill -9 $(cat {logs}/{consumer}-{victim}.app.pid {logs}/{consumer}-{victim}.sidecar.pid)
  scale             curl -H 'Content-Type: application/json' -d '{{"workload": "{consumer}", "replicas": 5}}' http://{page}/api/scale
  add partitions    {python} -c 'import rota; rota.Topics("{servers}").add_partitions({{"orders": 16}})'
  reset offsets     {python} -m rota_cli groups reset shop.{consumer} --bootstrap-servers {servers} --to-earliest --dry-run
  close and count   curl -fsS -o /dev/null -H 'Content-Type: application/json' -d '{{"workload": "{shop}", "replicas": 0}}' http://{page}/api/scale && {python} {folder}/audit.py {servers} http://{page}
Ctrl-C stops everything."""


class WentWrong(Exception):
    """The demo did not do what it is to show: one sentence."""


def demo_folder() -> Path:
    """Where its manifests are. Raises CannotRun."""
    for folder in PLACES:
        if (folder / "orders.yaml").exists():
            return folder
    raise CannotRun("the demo's manifests are not installed; give manifests with -f")


def hints(place: Place, folder: Path) -> str:
    """What to try."""
    return HINTS.format(
        consumer=CONSUMER,
        shop=SHOP,
        victim=VICTIM,
        page=place.page,
        servers=place.servers,
        python=from_here(place.python),
        folder=from_here(folder),
        logs=from_here(place.home / "logs"),
    )


def from_here(path: Path) -> Path:
    """Short, where that is possible."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Demo:
    """To be played beside a runner. The clock is a steady one."""

    def __init__(
        self, folder: Path, seconds: float, say: Callable[[str], None], monotonic_s: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._seconds = seconds
        self._say = say
        self._steady_s = monotonic_s
        self._began_s = monotonic_s()
        # None: it has not come so far.
        self.went_well: bool | None = None

    async def play(self, runner: Runner) -> None:
        """To its end; what comes of it is said, and stands in `went_well`."""
        try:
            counted = await self._play(runner)
        except WentWrong as wrong:
            self.went_well = False
            self._say(f"demo: {wrong}")
        else:
            self._say(f"demo: {counted}")

    async def _play(self, runner: Runner) -> str:
        consumer, shop = (self._workload(runner, name) for name in (CONSUMER, SHOP))
        await self._until(runner, "no record was processed", has_processed)
        first_s = self._passed_s()
        self._say(f"first record processed after {first_s:.1f} s")
        await self._until(runner, f"{MEMBERS} members did not share the partitions", shared_by(MEMBERS))
        victim = consumer.replica(VICTIM)
        self._say(f"killing {victim}")
        consumer.kill(VICTIM)
        killed_s = self._passed_s()
        await self._until(runner, f"{victim} did not exit", lambda _: consumer.restarts_of(VICTIM) >= PARTS)
        await self._until(runner, f"{victim} did not recover", lambda group: is_back(group, victim))
        back_s = self._passed_s() - killed_s
        self._say(f"{victim} recovered after {back_s:.1f} s")
        for count in (MORE_MEMBERS, FEWER_MEMBERS):
            self._scale(runner, CONSUMER, count)
            await self._until(runner, f"{count} members did not share the partitions", shared_by(count))
        await asyncio.sleep(max(0.0, self._seconds - self._passed_s()))
        self._scale(runner, SHOP, 0)
        await self._until(runner, "the shop did not stop", lambda _: not shop.view().replicas)
        await self._until(runner, "records were left unprocessed", lambda group: group.lag_records == 0)
        self.went_well, counted = await self._counted(runner.place)
        scaled = f"scaled {MEMBERS} → {MORE_MEMBERS} → {FEWER_MEMBERS}"
        return (
            f"{counted}; first after {first_s:.1f} s; killed member recovered after {back_s:.1f} s; {scaled}"
        )

    def _workload(self, runner: Runner, name: str) -> RunningWorkload:
        return next(each for each in runner.workloads if each.short_name == name)

    def _passed_s(self) -> float:
        return self._steady_s() - self._began_s

    def _scale(self, runner: Runner, name: str, replicas: int) -> None:
        wrong = runner.scale(name, replicas)
        assert not wrong, wrong

    async def _until(self, runner: Runner, otherwise: str, holds: Callable[[GroupView], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds(runner.board.view().groups[0]):
                    await runner.board.change()
        except TimeoutError:
            logs = runner.place.home / "logs"
            raise WentWrong(f"{otherwise} within {PATIENCE_S:g} s: see the logs in {logs}") from None

    async def _counted(self, place: Place) -> tuple[bool, str]:
        """Whether every order is processed, and the counts in one line. Raises WentWrong."""
        process = await asyncio.create_subprocess_exec(
            str(place.python),
            str(self._folder / "audit.py"),
            place.servers,
            f"http://{place.page}",
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                output, _ = await process.communicate()
        except TimeoutError:
            raise WentWrong(f"the orders were not counted within {PATIENCE_S:g} s") from None
        finally:
            # Also when the demo is cancelled meanwhile: no process is left running, and none unreaped.
            if process.returncode is None:
                process.kill()
                await process.wait()
        code = process.returncode
        return (
            code == 0,
            output.decode().strip() or f"the orders were not counted: audit.py exited with code {code}",
        )


def has_processed(group: GroupView) -> bool:
    """Whether any record was."""
    return any(member.records_done for member in group.members)


def owning(group: GroupView) -> list[MemberView]:
    """The members that say that they have partitions."""
    return [member for member in group.members if member.state == "Stable" and member.partitions]


def shared_by(count: int) -> Callable[[GroupView], bool]:
    """Whether so many have all partitions among them, and nobody else is there."""

    def holds(group: GroupView) -> bool:
        return (
            group.state == "Stable"
            and not group.unowned
            and len(group.members) == len(owning(group)) == count
        )

    return holds


def is_back(group: GroupView, name: str) -> bool:
    """Whether it has partitions, and gets something done."""
    return any(member.name == name and member.records_done for member in owning(group))
