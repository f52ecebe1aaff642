"""The runner's resets follow the state machine: once for each identity, by plans in files, over every death of the runner."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota_operator.local import offset_resets
from rota_operator.local.offset_resets import OffsetResets, ResetPorts
from rota_operator.local.paths import CannotStart, write_atomically
from rota_operator.local.reset_files import ResetFiles
from rota_operator.manifests.documents import parse_documents
from rota_operator.manifests.resources import ConsumerGroup, collect_resources
from rota_operator.offset_resets.sources import OffsetSource
from rota_operator.overview.assignment import Partition
from rota_operator.resets.targets import LogRange
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.reset_world import GROUP_ID, KEY, NOW_MS, Killed, Kills, World

Json = Any
A, B, C, D = (Partition("orders", number) for number in range(4))
ALL = (A, B, C, D)
WITHIN_S = 60
TERMINAL = ("Rejected", "Recorded", "Planned", "Completed", "Failed", "Waiting")


def reset(request_id: str = "replay-1", *, dry_run: bool = False, **to: Json) -> Json:
    return {"requestId": request_id, "dryRun": dry_run, "to": to or {"earliest": True}}


class Laptop:
    """A home folder, and a group of the world in it."""

    def __init__(self, home: Path, world: World | None = None) -> None:
        self.home = home
        self.world = world or World()
        self.said: list[str] = []
        # Committed offsets and the settings whenever the record was written.
        self.history: list[tuple[str, dict[Partition, int], bool]] = []

    # Part of the dashboard's state.
    def reports(self, group_id: str) -> Mapping[str, pb.SidecarReport]:
        return self.world.access(KEY).reports

    def client_ids(self, group_id: str) -> frozenset[str] | None:
        description = self.world.access(KEY).description
        return None if description is None else frozenset(each.client_id for each in description.members)

    async def wait_for_change(self) -> None:
        await asyncio.sleep(0)

    async def send_order(self, replica: str, order: pb.SidecarOrder, within_s: float) -> str:
        (principal,) = (each for each in self.world.connected if each.sidecar.pod == replica)
        return str((await self.world.order(principal.sidecar, order, within_s)).error)

    def source(self, group: ConsumerGroup) -> AbstractAsyncContextManager[OffsetSource]:
        return self.world.source(KEY)

    @property
    def folder(self) -> Path:
        return self.home / "resets" / "shop.orders"

    @property
    def record(self) -> Json:
        return json.loads((self.folder / "record.json").read_text())

    @property
    def settings(self) -> Path:
        return self.home / "settings" / "shop.orders.json"

    def plan(self, name: str) -> dict[int, tuple[str, str]]:
        """Return old and new offset by partition."""
        manifest = yaml.safe_load((self.folder / f"{name}.yaml").read_text())
        assert (manifest["kind"], manifest["metadata"]) == (
            "ConfigMap",
            {"name": name, "namespace": "shop"},
        )
        rows = [line.split(",") for line in manifest["data"]["plan.csv"].splitlines()[1:]]
        return {int(row[1]): (row[2], row[3]) for row in rows}

    def group(self, spec: Json) -> ConsumerGroup:
        manifests = [
            {
                "apiVersion": "rota.dev/v1alpha1", "kind": "ConsumerGroup",
                "metadata": {"name": "orders", "namespace": "shop"},
                "spec": {
                    "bootstrapServers": ["rota://rota:7070"], "topics": ["orders"],
                    "scaleTargetRef": {"name": "orders"}, **spec,
                },
            },
            {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "orders", "namespace": "shop"},
                "spec": {
                    "selector": {"matchLabels": {"app": "a"}},
                    "template": {
                        "metadata": {"labels": {"app": "a"}},
                        "spec": {"containers": [{"name": "a", "image": "a:1", "command": ["true"]}]},
                    },
                },
            },
        ]  # fmt: skip
        resources = collect_resources(parse_documents("orders.yaml", yaml.safe_dump_all(manifests)))
        (group,) = resources.groups.values()
        return group

    def start(self, wanted: Json = None, **spec: Json) -> OffsetResets:
        """Return the resets of another runner, by a manifest with this reset."""
        if wanted is not None:
            spec = {**spec, "offsets": {**spec.get("offsets", {}), "reset": wanted}}
        ports = ResetPorts(
            self, lambda: self.world.connected, self.send_order, self.source, lambda: NOW_MS,
            lambda group_id, message: self.said.append(message),
        )  # fmt: skip
        resets = OffsetResets(
            [self.group(spec)],
            ports,
            self.home / "resets",
            lambda _: self.settings,
            lambda at_ms: f"@{at_ms}",
        )
        resets.begin_run()
        return resets

    async def run(self, wanted: Json, until: tuple[str, ...] = TERMINAL, **spec: Json) -> str:
        """Run a runner until its reset has come to an end; returns the phase."""
        resets = self.start(wanted, **spec)
        running = asyncio.ensure_future(resets.run())
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    if running.done():
                        running.result()
                    if self.is_of(wanted) and self.record["phase"] in until:
                        return str(self.record["phase"])
                    await asyncio.sleep(0.001)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, BaseExceptionGroup):
                await running

    def is_of(self, wanted: Json) -> bool:
        """Return whether the record is about this reset."""
        record = self.record
        return (record.get("requestId"), record.get("dryRun")) == (wanted["requestId"], wanted["dryRun"])


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """A group that a runner has seen before."""
    monkeypatch.setattr(offset_resets, "RETRY_S", 0.001)
    laptop = Laptop(tmp_path)
    write = write_atomically

    def note(file: Path, text: str) -> None:
        laptop.world.kills.before()
        write(file, text)
        if file.name == "record.json":
            suspended = json.loads(laptop.settings.read_text()).get("suspend", False)
            laptop.history.append(
                (json.loads(text).get("phase", ""), dict(laptop.world.committed), suspended)
            )
        laptop.world.kills.after()

    monkeypatch.setattr("rota_operator.local.reset_files.write_atomically", note)
    laptop.start()
    return laptop


def offsets_when(laptop: Laptop, phase: str) -> dict[Partition, int]:
    return next(offsets for written, offsets, _ in laptop.history if written == phase)


def is_reading(laptop: Laptop) -> bool:
    settings = json.loads(laptop.settings.read_text())
    return not settings.get("suspend", False) and not any(
        each.suspended for each in laptop.world.sidecars.values()
    )


async def page_reset(laptop: Laptop, offsets: Mapping[Partition, int], group: str = GROUP_ID) -> str:
    """Reset by the page, while the runner runs."""
    resets = laptop.start()
    running = asyncio.ensure_future(resets.run())
    try:
        async with asyncio.timeout(WITHIN_S):
            return await resets.reset(group, offsets)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def test_a_reset_by_the_page_sets_offsets_while_all_are_suspended_and_leaves_an_undo_plan(
    laptop: Laptop,
) -> None:
    assert asyncio.run(page_reset(laptop, {A: 15, C: 17})) == ""
    assert {each: offsets_when(laptop, "Resuming")[each] for each in (A, C)} == {A: 15, C: 17}
    assert is_reading(laptop)
    record = laptop.record
    assert (record["phase"], record["partitions"], record["requestId"][:5]) == ("Completed", 2, "page-")
    before = offsets_when(laptop, "Committing")
    assert laptop.plan(record["undoConfigMap"]) == {0: ("15", str(before[A])), 2: ("17", str(before[C]))}
    # By the time that offsets are set, a sidecar that starts is suspended.
    assert [suspended for phase, _, suspended in laptop.history if phase == "Committing"] == [True]
    first, last = laptop.said
    assert first.endswith("suspending the members to set 2 offsets")
    assert ": done, 2 partitions, " in last
    assert str(laptop.folder / f"{record['undoConfigMap']}.yaml") in last


def test_a_member_that_started_suspended_and_connects_after_the_end_is_resumed(laptop: Laptop) -> None:
    assert asyncio.run(page_reset(laptop, {A: 15})) == ""
    laptop.world.sidecars["a"].suspended = True

    async def story() -> None:
        running = asyncio.ensure_future(laptop.start().run())
        async with asyncio.timeout(WITHIN_S):
            while not is_reading(laptop):
                await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(story())


def test_an_offset_that_a_rebalance_left_unset_is_set_by_the_next_owner(laptop: Laptop) -> None:
    def rebalance(pod: str, order: pb.SidecarOrder) -> None:
        if order.WhichOneof("order") == "reset_offsets" and laptop.world.generation == 3:
            laptop.world.move(A, "b")

    laptop.world.on_order = rebalance
    assert asyncio.run(page_reset(laptop, dict.fromkeys(ALL, 20))) == ""
    assert offsets_when(laptop, "Resuming") == dict.fromkeys(ALL, 20)


def test_a_group_without_members_is_reset_at_its_coordinator(laptop: Laptop) -> None:
    laptop.world.sidecars = {}
    assert asyncio.run(page_reset(laptop, {A: 15})) == ""
    assert laptop.world.committed[A] == 15


@pytest.mark.parametrize(
    ("prepare", "offsets", "group", "said"),
    [
        (lambda world: setattr(world, "foreign", ("stranger",)), {A: 15}, GROUP_ID, "such as stranger; wait for"),
        (lambda world: None, {A: 15}, "others", "group others is not run here"),
        (lambda world: None, {Partition("orders", 9): 1}, GROUP_ID, "partitions that do not exist"),
        (lambda world: None, {Partition("returns", 0): 1}, GROUP_ID, "does not consume topic returns"),
        (lambda world: None, {A: 101}, GROUP_ID, "after the log end 100"),
    ],
    ids=["foreign", "group", "partition", "topic", "beyond"],
)  # fmt: skip
def test_what_the_page_cannot_reset_is_refused_whole(
    laptop: Laptop, prepare: Callable[[World], None], offsets: dict[Partition, int], group: str, said: str
) -> None:
    prepare(laptop.world)
    problem = asyncio.run(page_reset(laptop, {B: 11, **offsets} if group == GROUP_ID else offsets, group))
    assert said in problem
    assert laptop.record == {}
    assert is_reading(laptop)
    assert laptop.world.committed[B] >= 51


def test_a_second_reset_during_the_first_is_refused(laptop: Laptop) -> None:
    async def story() -> tuple[str, str]:
        resets = laptop.start()
        running = asyncio.ensure_future(resets.run())
        first = asyncio.ensure_future(resets.reset(GROUP_ID, {A: 15}))
        await asyncio.sleep(0)
        second = await resets.reset(GROUP_ID, {A: 16})
        try:
            async with asyncio.timeout(WITHIN_S):
                return await first, second
        finally:
            running.cancel()

    first, second = asyncio.run(story())
    assert (first, second) == (
        "",
        f"a reset of group {GROUP_ID} is in progress; retry when it has finished",
    )
    assert laptop.world.committed[A] < 50


def test_a_reset_in_the_first_manifest_is_recorded_and_never_executed(tmp_path: Path) -> None:
    laptop = Laptop(tmp_path)
    assert asyncio.run(laptop.run(reset())) == "Recorded"
    assert "is not executed; set a new requestId" in laptop.said[0]
    assert asyncio.run(laptop.run(reset())) == "Recorded"
    assert min(laptop.world.committed.values()) >= 50


def test_an_identity_acts_once_also_when_an_old_manifest_comes_back(laptop: Laptop) -> None:
    assert asyncio.run(laptop.run(reset("one"))) == "Completed"
    assert asyncio.run(laptop.run(reset("two", latest=True))) == "Completed"
    laptop.world.committed = dict.fromkeys(ALL, 60)
    for request_id in ("one", "two"):

        async def story(again: str = request_id) -> None:
            resets = laptop.start(reset(again))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await resets.run()

        asyncio.run(story())
    assert laptop.world.committed == dict.fromkeys(ALL, 60)
    assert [each["requestId"] for each in laptop.record["executed"]] == ["one", "two"]


def test_dry_run_execution_and_undo_bring_back_every_offset(laptop: Laptop) -> None:
    before = dict(laptop.world.committed)
    laptop.world.sidecars = {}
    assert asyncio.run(laptop.run(reset(dry_run=True, offset=70))) == "Planned"
    assert laptop.world.committed == before
    name = laptop.record["planConfigMap"]
    assert name == "orders-reset-replay-1"
    assert laptop.plan(name) == {each.number: (str(before[each]), "70") for each in ALL}
    assert laptop.said[-1].endswith(
        f"see {laptop.folder / 'orders-reset-replay-1.yaml'}; set dryRun to false to execute the plan"
    )
    # The plan that was reviewed counts, not the target.
    assert asyncio.run(laptop.run(reset(latest=True))) == "Completed"
    assert laptop.world.committed == dict.fromkeys(ALL, 70)
    undo = laptop.record["undoConfigMap"]
    assert asyncio.run(laptop.run(reset("back", fromConfigMap=undo))) == "Completed"
    assert laptop.world.committed == before


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ({"datetime": "2023-11-14T00:00:00Z"}, "30"),
        ({"byDuration": "PT1H30M"}, "30"),
        ({"earliest": True}, "10"),
        ({"latest": True}, "100"),
        ({"offset": 77}, "77"),
        ({"shiftBy": -5}, "45"),
    ],
    ids=str,
)
def test_each_target_is_an_offset_of_the_plan(laptop: Laptop, to: Json, offset: str) -> None:
    laptop.world.sidecars = {}
    assert asyncio.run(laptop.run(reset(dry_run=True, **to))) == "Planned"
    assert laptop.plan("orders-reset-replay-1")[0] == ("50", offset)


def test_only_the_topics_that_are_named_are_reset(laptop: Laptop) -> None:
    laptop.world.sidecars = {}
    other = Partition("returns", 0)
    laptop.world.ranges[other], laptop.world.committed[other] = LogRange(0, 90), 33
    assert asyncio.run(laptop.run({**reset(), "topics": ["orders"]})) == "Completed"
    assert laptop.world.committed == {**dict.fromkeys(ALL, 10), other: 33}


@pytest.mark.parametrize(
    ("wanted", "spec", "said"),
    [
        (reset(datetime="2099-01-01T00:00:00Z"), {}, "to.datetime is in the future"),
        (reset(fromConfigMap="nope"), {}, "ConfigMap nope with the plan does not exist"),
        (reset(), {"offsets": {"commit": {"mode": "external"}}}, "reset the position in the store"),
        (reset(), {"offsets": {"commit": {"mode": "transactional"}}}, "scale the workload to 0"),
    ],
    ids=["future", "plan", "external", "transactional"],
)
def test_what_cannot_be_done_is_said_and_tried_again_by_the_next_runner(
    laptop: Laptop, wanted: Json, spec: Json, said: str
) -> None:
    assert asyncio.run(laptop.run(wanted, **spec)) == "Rejected"
    assert said in laptop.said[-1]
    assert is_reading(laptop)
    assert min(laptop.world.committed.values()) >= 50


def test_a_plan_that_was_edited_is_not_executed(laptop: Laptop) -> None:
    laptop.world.sidecars = {}
    asyncio.run(laptop.run(reset(dry_run=True)))
    file = laptop.folder / "orders-reset-replay-1.yaml"
    file.write_text(file.read_text().replace(",10,", ",11,", 1))
    assert asyncio.run(laptop.run(reset())) == "Rejected"
    assert "was changed after the plan was made" in laptop.said[-1]


def test_a_reset_waits_for_members_that_do_not_report(laptop: Laptop) -> None:
    laptop.world.sidecars["b"].connected = False
    assert asyncio.run(laptop.run(reset())) == "Waiting"
    assert "1 members do not report as sidecars of this ConsumerGroup, such as b" in laptop.said[-1]
    assert is_reading(laptop)
    laptop.world.sidecars["b"].connected = True
    assert asyncio.run(laptop.run(reset(), until=("Completed", "Failed"))) == "Completed"


def test_a_suspended_group_stays_suspended(laptop: Laptop) -> None:
    for each in laptop.world.sidecars.values():
        each.suspended = True
    assert asyncio.run(laptop.run(reset(), suspend=True)) == "Completed"
    assert all(each.suspended for each in laptop.world.sidecars.values())
    assert json.loads(laptop.settings.read_text())["suspend"] is True


def test_a_runner_that_is_killed_anywhere_is_followed_by_one_that_finishes(laptop: Laptop) -> None:
    """Kill it before and after each of its orders and of its writes, one after the other."""
    at = 0
    while True:
        at += 1
        for is_after in (False, True):
            world = laptop.world = World()
            laptop.history.clear()
            kills = world.kills = world.objects._kills = Kills(at, is_after)
            wanted = reset(f"replay-{at}-{is_after}", offset=70)
            killed = False
            try:
                phase = asyncio.run(laptop.run(wanted))
            except* Killed:
                killed = True
                # The next one goes on, whatever its manifest says by now.
                phase = asyncio.run(laptop.run(wanted))
            assert phase == "Completed", (at, is_after)
            assert offsets_when(laptop, "Resuming") == dict.fromkeys(ALL, 70), (at, is_after)
            assert is_reading(laptop), (at, is_after)
            if not killed:
                assert kills.count < at
                assert at > 10
                return


def test_a_record_that_cannot_be_read_stops_the_start(laptop: Laptop) -> None:
    (laptop.folder / "record.json").write_text('{"phase": 1}')
    with pytest.raises(CannotStart, match="remove it to forget all offset resets of the group"):
        laptop.start()


def test_files_of_a_plan_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    files = ResetFiles(tmp_path, GROUP_ID, "shop", str)
    for text in ("[", "data: 5", "data: {plan.csv: 5}", "\x00"):
        (tmp_path / "plan.yaml").write_text(text)
        with pytest.raises(Exception, match="is not a ConfigMap with the plan"):
            files.read_plan("plan")
