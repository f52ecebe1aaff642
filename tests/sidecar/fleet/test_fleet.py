"""A sidecar reports to Fleet and takes its orders; without Fleet it goes on."""

import asyncio
import signal
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.settings_pb2 import GroupSettings
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.sidecar.fleet.stories import RECORDS, done, run_story
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator
from tests.support.records import committed, fill
from tests.support.sidecar import Deliverer, Sidecar, delivering

# As long as a test may take.
CLOCK_MS = 180_000
pytestmark = pytest.mark.process


def is_suspended(fleet: Headquarters) -> bool:
    return fleet.last.member.suspended


def positions(fleet: Headquarters) -> list[tuple[int, int | None, int | None]]:
    return [(each.partition, each.committed, each.end) for each in fleet.last.partitions]


def test_reports_have_the_state_of_member_and_partitions(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: positions(fleet) == [(0, RECORDS, RECORDS), (1, RECORDS, RECORDS)])
        report = fleet.last
        assert report.group_id == topic
        assert report.sidecar == "pod-7"
        assert report.member.state == pb.MEMBER_STATE_STABLE
        assert report.member.member_id
        assert report.member.generation_id == 1
        assert report.member.HasField("dead_letters")
        assert report.member.dead_letters == 0
        assert report.member.busy_seconds > 0
        assert not report.member.suspended
        assert not report.partitions[0].HasField("first_unresolved_timestamp_ms")
        assert {each.in_flight for each in report.partitions} == {0}

    run_story(tmp_path, coordinator, topic, story, "--client-id=pod-7")


def test_reports_say_who_speaks_and_whether_it_is_ready(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        report = fleet.last
        assert report.version == version("rota-sidecar")
        assert report.settings_hash == "5f3a"
        assert report.cluster_id == "", "Rota's log has none"
        assert not report.member.ready
        assert report.member.readiness_problem.startswith("no application is attached")
        await fleet.wait_until(lambda: fleet.last.member.unattached_seconds > 0)
        assert fleet.last.member.state == pb.MEMBER_STATE_DOWN, "it joins once there is an application"
        app.start()
        await fleet.wait_until(lambda: fleet.last.member.ready and bool(fleet.last.partitions))
        assert fleet.last.member.readiness_problem == ""
        assert not fleet.last.member.HasField("unattached_seconds")
        assert await asyncio.to_thread(lambda: sidecar.is_ready)
        app.kill()
        await fleet.wait_until(lambda: not fleet.last.member.ready)
        assert fleet.last.member.HasField("unattached_seconds")

    run_story(tmp_path, coordinator, topic, story, "--settings-hash=5f3a", begins=False)


def test_the_last_progress_stands_still_while_the_application_hangs(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    def times(fleet: Headquarters) -> list[int]:
        assert all(each.HasField("last_progress_ms") for each in fleet.last.partitions)
        return [each.last_progress_ms for each in fleet.last.partitions]

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        first = times(fleet)
        assert len(first) == 2
        # Idle is no standstill.
        await fleet.wait_until(lambda: all(now > then for now, then in zip(times(fleet), first, strict=True)))
        app.signal(signal.SIGSTOP)
        fill(coordinator.address, topic, 1, 5)
        await fleet.wait_until(lambda: fleet.last.partitions[0].in_flight > 0)
        still = times(fleet)
        moved = len(fleet.reports)
        await fleet.wait_until(lambda: len(fleet.reports) > moved + 2)
        assert times(fleet)[0] == still[0]
        assert times(fleet)[1] > still[1]
        app.signal(signal.SIGCONT)
        await fleet.wait_until(lambda: times(fleet)[0] > still[0])

    run_story(tmp_path, coordinator, topic, story)


def test_what_is_not_known_is_left_out(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        assert all(not each.HasField("arrival_rate") for each in fleet.reports[0].partitions)
        assert fleet.reports[0].member.records_done == 0

    run_story(tmp_path, coordinator, topic, story, begins=False)


def test_what_keeps_it_from_reading_is_reported_until_it_is_over(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    dead_letters = f"{topic}-letters"

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        await fleet.wait_until(lambda: [bool(each.problem) for each in fleet.last.partitions] == [True, True])
        assert "nothing is committed; seek" in fleet.last.partitions[0].problem
        await fleet.wait_until(lambda: len(fleet.last.member.problems) == 2)
        missing, dead = fleet.last.member.problems
        assert missing == f"topic {topic}-missing does not exist: create it"
        assert dead.startswith(f"dead-letter topic {dead_letters} does not exist: create it")
        coordinator.make_topic(dead_letters, 1)
        await fleet.wait_until(lambda: list(fleet.last.member.problems) == [missing])

    flags = (
        f"--dead-letter-topic={dead_letters}",
        "--initial-offset=none",
        f"--topics={topic},{topic}-missing",
    )
    run_story(tmp_path, coordinator, topic, story, *flags, begins=False)


def test_suspended_it_stays_a_member_and_reads_nothing(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        assert (await fleet.order(1, suspend=pb.Suspend())).error == ""
        await fleet.wait_until(lambda: fleet.last.member.suspended)
        fill(coordinator.address, topic, 1, 5)
        seen = len(fleet.reports)
        await fleet.wait_until(lambda: len(fleet.reports) > seen + 2)
        assert done(fleet) == 2 * RECORDS
        assert fleet.last.member.state == pb.MEMBER_STATE_STABLE
        assert (await fleet.order(2, resume=pb.Resume())).error == ""
        await fleet.wait_until(lambda: done(fleet) == 2 * RECORDS + 5)

    run_story(tmp_path, coordinator, topic, story)


def test_a_heartbeat_is_sent_when_it_is_ordered(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    name = f'rota_heartbeats_total{{group="{topic}",outcome="ok"}}'

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        before = sidecar.metrics()[name]
        assert (await fleet.order(1, heartbeat=pb.Heartbeat())).error == ""
        await asyncio.to_thread(sidecar.wait_until, lambda: sidecar.metrics()[name] == before + 1)

    # None is due before the test ends.
    times = ("--heartbeat-interval-ms=60000", "--session-timeout-ms=180000")
    run_story(tmp_path, coordinator, topic, story, *times)


def test_other_settings_are_taken_as_a_whole_or_not_at_all(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def configured(fleet: Headquarters, number: int, settings: dict[str, Any]) -> str:
        order = pb.Configure(settings=ParseDict(settings, GroupSettings()))
        return (await fleet.order(number, configure=order)).error

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        wrong = {"suspend": True, "delivery": {"retry": -3}}
        assert "delivery.retry is -3; expected 0 to" in await configured(fleet, 1, wrong)
        assert not is_suspended(fleet)
        fixed = {"suspend": True, "membership": {"sessionTimeoutSeconds": 60}}
        assert await configured(fleet, 2, fixed) == "", "flags go before settings"
        await fleet.wait_until(lambda: fleet.last.member.suspended)
        assert "delivery.ordering cannot be changed" in await configured(
            fleet, 3, {"delivery": {"ordering": "key"}}
        )
        assert fleet.last.member.suspended
        assert await configured(fleet, 4, {"assignment": {"strategy": "range,cooperative-sticky"}}) == ""
        await fleet.wait_until(lambda: fleet.last.member.generation_id == 2)
        assert not fleet.last.member.suspended

    run_story(tmp_path, coordinator, topic, story)


def test_a_strategy_is_changed_in_two_rounds_so_that_members_without_it_stay_in_the_group(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    other = Sidecar(
        tmp_path / "other",
        f"rota://{coordinator.address}",
        topic,
        (f"--topics={topic}", "--assignors=cooperative-sticky"),
    )

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await asyncio.to_thread(other.start)
        await asyncio.to_thread(other.wait_until_it_has, 1)
        before = fleet.last.member.generation_id
        order = pb.Configure(settings=ParseDict({"assignment": {"strategy": "range"}}, GroupSettings()))
        assert (await fleet.order(1, configure=order)).error == ""
        # It has offered both, and the group goes on with the strategy that both members have.
        await fleet.wait_until(lambda: is_stable_after(fleet, before))
        assert coordinator.strategy_of(topic) == "cooperative-sticky"
        assert coordinator.members_of(topic) == 2

        await asyncio.to_thread(other.send, "assignors", names=["range", "cooperative-sticky"])
        await fleet.wait_until(
            lambda: (
                coordinator.strategy_of(topic) == "range"
                and fleet.last.member.state == pb.MEMBER_STATE_STABLE
            )
        )
        # The former strategy is not offered any more: the two share none but the new one.
        await asyncio.to_thread(other.send, "assignors", names=["range"])
        await asyncio.to_thread(other.wait_until_it_has, 1)
        assert coordinator.members_of(topic) == 2
        await asyncio.to_thread(other.stop)

    run_story(tmp_path, coordinator, topic, story)


def is_stable_after(fleet: Headquarters, generation: int) -> bool:
    member = fleet.last.member
    return member.generation_id > generation and member.state == pb.MEMBER_STATE_STABLE


def test_offsets_are_reset_by_the_owner_and_read_from_there(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        offsets = [pb.PartitionOffset(topic=topic, partition=number, offset=10) for number in (0, 1)]
        topics = [pb.TopicOffsets(topic=topic, offsets=offsets)]
        old = pb.ResetOffsets(request_id="r", generation_id=7, topics=topics)
        assert "generation" in (await fleet.order(1, reset_offsets=old)).error.lower()
        reset = pb.ResetOffsets(request_id="r", generation_id=1, topics=topics)
        answer = await fleet.order(2, reset_offsets=reset)
        assert answer.error == ""
        assert [(each.partition, each.offset) for each in answer.offsets] == [(0, 10), (1, 10)]
        again = 2 * (2 * RECORDS - 10)
        await fleet.wait_until(lambda: done(fleet) == again)
        assert await fleet.order(2, reset_offsets=reset) == answer, "once"
        seen = len(fleet.reports)
        await fleet.wait_until(lambda: len(fleet.reports) > seen + 2)
        assert done(fleet) == again

    run_story(tmp_path, coordinator, topic, story)


def test_an_order_to_drain_is_forgotten_when_it_expires(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        now_ms = int(time.time() * 1000)  # noqa: TID251  what an operator would say
        assert (await fleet.order(1, drain=pb.Drain(expires_ms=now_ms + 600_000))).error == ""
        assert "Fleet ordered a drain" in await asyncio.to_thread(lambda: sidecar.unready_because)
        await fleet.wait_until(lambda: fleet.last.member.draining)
        assert fleet.last.member.problems[0].startswith(
            "drained: Fleet ordered a drain; the member resumes in "
        )
        assert abs(fleet.last.sent_ms - now_ms) < CLOCK_MS
        # The operator's clock is three minutes behind that of the sidecar.
        late = pb.Drain(expires_ms=now_ms - 180_000, within_ms=600_000)
        assert (await fleet.order(3, drain=late)).error == ""
        assert "Fleet ordered a drain" in await asyncio.to_thread(lambda: sidecar.unready_because)
        assert (await fleet.order(2, drain=pb.Drain(expires_ms=now_ms))).error == ""
        await asyncio.to_thread(sidecar.wait_until, lambda: sidecar.has_said("undrained"))
        fill(coordinator.address, topic, 1, 5)
        await fleet.wait_until(lambda: done(fleet) == 2 * RECORDS + 5)
        assert not fleet.last.member.draining
        assert list(fleet.last.member.problems) == []

    run_story(tmp_path, coordinator, topic, story)


def test_a_static_member_waits_ready_for_its_name(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        assert "no application is attached" in await asyncio.to_thread(lambda: sidecar.unready_because)
        app.start()
        await fleet.wait_until(lambda: fleet.last.member.ready)
        assert await asyncio.to_thread(lambda: sidecar.is_ready)
        assert fleet.last.member.state == pb.MEMBER_STATE_DOWN
        assert "invalid instance name" in (await fleet.order(1, instance=pb.Instance(name="a b"))).error
        assert (await fleet.order(2, instance=pb.Instance(name=f"{topic}-0"))).error == ""
        await fleet.wait_until(lambda: done(fleet) == 2 * RECORDS)
        assert fleet.last.member.group_instance_id == f"{topic}-0"
        assert (await fleet.order(3, instance=pb.Instance(name=f"{topic}-1"))).error == ""
        await fleet.wait_until(
            lambda: fleet.last.member.group_instance_id == f"{topic}-1" and len(fleet.last.partitions) == 2
        )
        fill(coordinator.address, topic, 1, 5)
        await fleet.wait_until(lambda: done(fleet) == 2 * RECORDS + 5)
        assert await asyncio.to_thread(sidecar.terminate) == 0

    run_story(tmp_path, coordinator, topic, story, "--static", begins=False)


def test_without_fleet_it_goes_on_and_dials_again(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet:
            address = fleet.address
        more = (f"--topics={topic}", "--commit-interval-ms=200", f"--fleet={address}")
        sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", topic, more)
        app = App(tmp_path, sidecar.address)

        def work() -> None:
            app.wait_until(lambda: len(app.done) == 2 * RECORDS)
            sidecar.wait_until(
                lambda: any("Fleet is unavailable" in each["message"] for each in sidecar.said)
            )

        with delivering(sidecar), attached(app):
            await asyncio.to_thread(work)
            async with serving(address) as fleet:
                await fleet.wait_until(lambda: done(fleet) == 2 * RECORDS)
                assert (await fleet.order(1, suspend=pb.Suspend())).error == ""
                fleet.hang_up()
                await fleet.wait_until(lambda: fleet.streams == 2)
                await fleet.wait_until(lambda: len(fleet.answers[1]) == 2)
        ends = {(topic, 0): RECORDS, (topic, 1): RECORDS}
        assert committed(coordinator.address, topic) == ends

    asyncio.run(run())


def test_fleet_is_shown_the_token(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    token = tmp_path / "token"
    token.write_text("who-we-are\n")

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        assert fleet.metadata[0]["authorization"] == "Bearer who-we-are"

    run_story(tmp_path, coordinator, topic, story, f"--token-file={token}", begins=False)
