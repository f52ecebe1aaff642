"""
Runs the orders example: interactively, with hints for the user, or unattended for `--demo-seconds`.

The unattended demo kills a member, scales, closes the shop, counts orders and prints a one-line summary.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rota_operator.local.commands import LocalPaths
from rota_operator.local.paths import CannotStart
from rota_operator.local.runner import Runner
from rota_operator.local.workload import LocalWorkload
from rota_operator.overview.view import GroupView, MemberView

# In a checkout the example is the one that the tests run; an installed package contains a copy of it.
DEMO_FOLDERS = (
    Path(__file__).parents[4] / "examples" / "orders",
    Path(__file__).parent / "orders",
)
CONSUMER, SHOP = "orders-enricher", "orders-shop"
MEMBERS, MORE_MEMBERS, FEWER_MEMBERS = 3, 5, 2
VICTIM = 1
# Application and sidecar.
PARTS = 2
# Time limit of each step.
STEP_TIMEOUT_S = 60.0
HINTS = """\
Try in another terminal:
  kill a member     kill -9 $(cat {logs}/{consumer}-{victim}.app.pid {logs}/{consumer}-{victim}.sidecar.pid)
  scale             curl -H 'Content-Type: application/json' -d '{{"workload": "{consumer}", "replicas": 5}}' http://{page}/api/scale
  add partitions    {python} -c 'import rota; rota.Topics("{servers}").add_partitions({{"orders": 16}})'
  reset offsets     {python} -m rota_cli groups reset shop.{consumer} --bootstrap-servers {servers} --to-earliest --dry-run
  close and count   curl -fsS -o /dev/null -H 'Content-Type: application/json' -d '{{"workload": "{shop}", "replicas": 0}}' http://{page}/api/scale && {python} {folder}/audit.py {servers} http://{page}
Ctrl-C stops everything."""


class DemoFailed(Exception):
    """A step of the demo failed; the message says which."""


def demo_folder() -> Path:
    """Return the folder of the demo's manifests. Raises CannotStart if they are not installed."""
    for folder in DEMO_FOLDERS:
        if (folder / "orders.yaml").exists():
            return folder
    raise CannotStart("the demo's manifests are not installed; give manifests with -f")


def hints(paths: LocalPaths, folder: Path) -> str:
    """Return the commands to try, with this runner's addresses and paths."""
    return HINTS.format(
        consumer=CONSUMER,
        shop=SHOP,
        victim=VICTIM,
        page=paths.page,
        servers=paths.servers,
        python=relative_to_cwd(paths.python),
        folder=relative_to_cwd(folder),
        logs=relative_to_cwd(paths.home / "logs"),
    )


def relative_to_cwd(path: Path) -> Path:
    """Return the path relative to the working directory if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Demo:
    """The unattended demo, run as a display of a runner. `succeeded` is None until it has finished."""

    def __init__(
        self,
        folder: Path,
        seconds: float,
        print_line: Callable[[str], None],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._seconds = seconds
        self._print_line = print_line
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        # None: the demo has not reached this step.
        self.succeeded: bool | None = None

    async def play(self, runner: Runner) -> None:
        """Run all steps, print the summary or the failure, and set `succeeded`."""
        try:
            counted = await self._play(runner)
        except DemoFailed as wrong:
            self.succeeded = False
            self._print_line(f"demo: {wrong}")
        else:
            self._print_line(f"demo: {counted}")

    async def _play(self, runner: Runner) -> str:
        consumer, shop = (self._workload(runner, name) for name in (CONSUMER, SHOP))
        await self._until(runner, "no record was processed", has_processed)
        first_s = self._passed_s()
        self._print_line(f"first record processed after {first_s:.1f} s")
        await self._until(runner, f"{MEMBERS} members did not share the partitions", shared_by(MEMBERS))
        victim = consumer.replica(VICTIM)
        self._print_line(f"killing {victim}")
        consumer.kill(VICTIM)
        killed_s = self._passed_s()
        await self._until(runner, f"{victim} did not exit", lambda _: consumer.restarts_of(VICTIM) >= PARTS)
        await self._until(runner, f"{victim} did not recover", lambda group: has_recovered(group, victim))
        back_s = self._passed_s() - killed_s
        self._print_line(f"{victim} recovered after {back_s:.1f} s")
        for count in (MORE_MEMBERS, FEWER_MEMBERS):
            self._scale(runner, CONSUMER, count)
            await self._until(runner, f"{count} members did not share the partitions", shared_by(count))
        await asyncio.sleep(max(0.0, self._seconds - self._passed_s()))
        self._scale(runner, SHOP, 0)
        await self._until(runner, "the shop did not stop", lambda _: not shop.view().replicas)
        await self._until(runner, "records were left unprocessed", lambda group: group.lag_records == 0)
        self.succeeded, counted = await self._counted(runner.paths)
        scaled = f"scaled {MEMBERS} → {MORE_MEMBERS} → {FEWER_MEMBERS}"
        return (
            f"{counted}; first after {first_s:.1f} s; killed member recovered after {back_s:.1f} s; {scaled}"
        )

    def _workload(self, runner: Runner, name: str) -> LocalWorkload:
        return next(each for each in runner.workloads if each.short_name == name)

    def _passed_s(self) -> float:
        return self._monotonic_s() - self._started_s

    def _scale(self, runner: Runner, name: str, replicas: int) -> None:
        wrong = runner.scale(name, replicas)
        assert not wrong, wrong

    async def _until(self, runner: Runner, failure: str, holds: Callable[[GroupView], bool]) -> None:
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                while not holds(runner.dashboard.view().groups[0]):
                    await runner.dashboard.wait_for_change()
        except TimeoutError:
            logs = runner.paths.home / "logs"
            raise DemoFailed(f"{failure} within {STEP_TIMEOUT_S:g} s: see the logs in {logs}") from None

    async def _counted(self, paths: LocalPaths) -> tuple[bool, str]:
        """Run audit.py; return whether all orders were processed, and its output. Raises DemoFailed."""
        process = await asyncio.create_subprocess_exec(
            str(paths.python),
            str(self._folder / "audit.py"),
            paths.servers,
            f"http://{paths.page}",
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            raise DemoFailed(f"the orders were not counted within {STEP_TIMEOUT_S:g} s") from None
        finally:
            # Also when the demo is cancelled: no process is left running or unreaped.
            if process.returncode is None:
                process.kill()
                await process.wait()
        code = process.returncode
        return (
            code == 0,
            output.decode().strip() or f"the orders were not counted: audit.py exited with code {code}",
        )


def has_processed(group: GroupView) -> bool:
    """True if any member has processed a record."""
    return any(member.records_done for member in group.members)


def owning_members(group: GroupView) -> list[MemberView]:
    """Return the stable members with partitions."""
    return [member for member in group.members if member.state == "Stable" and member.partitions]


def shared_by(count: int) -> Callable[[GroupView], bool]:
    """Return a predicate: all partitions are owned by exactly `count` stable members, and there are no others."""

    def holds(group: GroupView) -> bool:
        return (
            group.state == "Stable"
            and not group.unowned
            and len(group.members) == len(owning_members(group)) == count
        )

    return holds


def has_recovered(group: GroupView, name: str) -> bool:
    """True if the member owns partitions and has processed a record since its restart."""
    return any(member.name == name and member.records_done for member in owning_members(group))
