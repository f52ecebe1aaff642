"""The watches of groups, at a real coordinator: what decisions rest on, and what they change there."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

import rota
from rota_operator.cluster.channels import KEEPALIVE_MS, Channels
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.queues import Key
from rota_operator.cluster.watched import Watched
from rota_operator.engines.coordinators import OnlyCoordinator
from rota_operator.engines.port import Unavailable
from rota_operator.engines.rota import RotaGroups
from rota_operator.overview.assignment import Partition
from rota_operator.overview.offset_lookups import QUERY_INTERVAL_MS
from rota_operator.overview.view import EventKind
from rota_operator.reconcile.observed import GroupStrategies, SidecarStrategies
from rota_operator.status.inputs import Progress, ReportedPartition
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.support.certificates import Authority
from tests.support.coordinator import Coordinator, serving

pytestmark = pytest.mark.process

KEY, OTHER = Key("shop", "orders"), Key("shop", "payments")
WITHIN_S = 60


class Observer:
    """Callbacks that wake up a story."""

    def __init__(self) -> None:
        self.states: list[Key] = []
        self._changed = asyncio.Event()

    def on_view(self, key: Key) -> None:
        self._changed.set()

    def on_exception(self, error: Exception) -> None:
        raise AssertionError from error

    @property
    def is_changed(self) -> bool:
        return self._changed.is_set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


def play(
    story: Callable[[GroupWatches, Observer], Awaitable[None]],
    keepalive_ms: int = KEEPALIVE_MS,
    authority: Callable[[], bytes] | None = None,
) -> None:
    """Run a story; `authority`: of the coordinator, None: it has no TLS."""

    async def bounded() -> None:
        observer = Observer()
        callbacks = GroupCallbacks(
            observer.on_view, observer.on_view, observer.states.append, observer.on_exception
        )
        channels = Channels(
            authority or (lambda: None), insecure=authority is None, keepalive_ms=keepalive_ms
        )
        groups = GroupWatches(channels, callbacks, lambda: time.time_ns() // 1_000_000)
        try:
            async with asyncio.timeout(WITHIN_S):
                await story(groups, observer)
        finally:
            await groups.close()

    asyncio.run(bounded())


def watched(coordinator: str, group_id: str = "shop.orders", topic: str = "orders") -> Watched:
    return Watched(group_id, coordinator, bool(coordinator), (topic,), "", "earliest", read_committed=False)


def test_initial_offsets_are_committed_once_for_a_group_without_members_and_a_group_is_deleted(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as coordinator:
        rota.create_topics(f"rota://{coordinator.address}", {"orders": 3})

        async def story(groups: GroupWatches, observer: Observer) -> None:
            groups.add(KEY, watched(coordinator.address))
            assert (groups.members(KEY), groups.is_new(KEY)) == (None, None)
            await observer.until(lambda: (groups.members(KEY), groups.is_new(KEY)) == (0, True))
            await groups.commit_initial_offsets(KEY)
            await observer.until(lambda: groups.is_new(KEY) is False)
            view = groups.view(KEY)
            assert view is not None
            assert [each.committed for each in view.partitions] == [0, 0, 0]
            assert (view.unowned, view.lag_records) == (3, 0)
            await groups.delete_group(KEY)
            await groups.delete_group(KEY)
            await observer.until(lambda: groups.is_new(KEY) is True)
            # Once for what was found first, then for each change.
            assert set(observer.states) == {KEY}

        play(story)


def test_events_of_resets_are_in_the_history_of_the_group_and_wake_up_its_readers() -> None:
    async def story(groups: GroupWatches, observer: Observer) -> None:
        # On Kafka: nothing is asked.
        groups.add(KEY, watched(""))
        assert list(groups.keys) == [KEY]
        groups.record_event(KEY, EventKind.RESET, "3 partitions reset")
        # Nothing is watched for it.
        groups.record_event(OTHER, EventKind.RESET, "3 partitions reset")
        view = groups.view(KEY)
        assert view is not None
        assert [(each.kind, each.message) for each in view.history] == [
            (EventKind.RESET, "3 partitions reset")
        ]
        assert observer.is_changed
        assert groups.view(OTHER) is None

    play(story)


def test_a_coordinator_that_goes_leaves_its_groups_unknown_and_comes_back(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.start()
    address = coordinator.address

    async def story(groups: GroupWatches, observer: Observer) -> None:
        groups.add(KEY, watched(address))
        await observer.until(lambda: groups.members(KEY) == 0)
        coordinator.kill()
        await observer.until(lambda: groups.members(KEY) is None)
        with pytest.raises(Unavailable):
            await groups.commit_initial_offsets(KEY)

    play(story)


def test_a_coordinator_that_falls_silent_leaves_its_groups_unknown_and_is_found_again(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:

        async def story(groups: GroupWatches, observer: Observer) -> None:
            # Its records are elsewhere: nothing is polled, and the stream of descriptions stays open.
            groups.add(KEY, watched(coordinator.address)._replace(has_log=False))
            await observer.until(lambda: groups.members(KEY) == 0)
            os.kill(coordinator.pid, signal.SIGSTOP)
            try:
                await observer.until(lambda: groups.members(KEY) is None)
            finally:
                os.kill(coordinator.pid, signal.SIGCONT)
            await observer.until(lambda: groups.members(KEY) == 0)

        play(story, keepalive_ms=500)


def test_a_changed_authority_is_trusted_over_new_channels_and_no_view_is_lost(tmp_path: Path) -> None:
    former, successor = Authority(tmp_path / "former"), Authority(tmp_path / "successor")
    issued, trusted = former.issue("coordinator"), [former]
    with serving(tmp_path, (f"--tls-cert={issued.certificate}", f"--tls-key={issued.key}")) as coordinator:

        async def story(groups: GroupWatches, observer: Observer) -> None:
            groups.add(KEY, watched(coordinator.address)._replace(has_log=False))
            await observer.until(lambda: groups.members(KEY) == 0)
            issued.replace(successor.issue("coordinator"))
            trusted.append(successor)
            groups.reconnect()
            assert groups.members(KEY) == 0
            # Over the new channel: the former one has no call left.
            await groups.delete_group(KEY)
            groups.remove(KEY)
            groups.add(KEY, watched(coordinator.address)._replace(has_log=False))
            await observer.until(lambda: groups.members(KEY) == 0)

        def authority() -> bytes:
            return trusted[-1].certificate.read_bytes()

        play(story, authority=authority)


def test_a_group_on_kafka_is_known_by_its_sidecars_reports_alone() -> None:
    async def story(groups: GroupWatches, observer: Observer) -> None:
        groups.add(KEY, watched(""))
        assert groups.members(KEY) is None
        member = pb.MemberReport(member_id="m-1", state=pb.MEMBER_STATE_STABLE, generation_id=4)
        partition = pb.PartitionReport(topic="orders", partition=1, last_progress_ms=5, problem="paused")
        report = pb.SidecarReport(
            group_id="shop.orders", sidecar="pod-0", member=member, partitions=[partition], cluster_id="c-1"
        )
        groups.add_report(KEY, report)
        groups.add_report(OTHER, report)
        view = groups.view(KEY)
        assert view is not None
        assert [each.name for each in view.members] == ["pod-0"]
        assert [(each.partition, each.owner) for each in view.partitions] == [(1, "pod-0")]
        reported = ReportedPartition("pod-0", Partition("orders", 1))
        assert groups.progress(KEY) == {reported: Progress(5, "paused")}
        assert (groups.members(KEY), groups.is_new(KEY)) == (1, None)
        assert (groups.cluster_id(KEY), groups.cluster_id(OTHER)) == ("c-1", "")
        assert groups.view(OTHER) is None

    play(story)


def test_reports_of_a_change_of_strategy_ask_for_a_reconcile_and_others_do_not() -> None:
    async def story(groups: GroupWatches, observer: Observer) -> None:
        def add(chosen: str, *offered: str) -> int:
            member = pb.MemberReport(strategy=chosen, offered_strategies=offered)
            before = len(observer.states)
            groups.add_report(KEY, pb.SidecarReport(sidecar="pod-0", member=member))
            return len(observer.states) - before

        groups.add(KEY, watched(""))
        assert add("", "sticky") == 0
        assert add("sticky", "sticky") == 1
        assert add("sticky", "sticky") == 0
        assert add("sticky", "range", "sticky") == 1
        assert groups.strategies(KEY) == GroupStrategies(
            "", {"pod-0": SidecarStrategies("sticky", ("range", "sticky"))}
        )
        assert groups.strategies(OTHER) == GroupStrategies()
        # As for the next operator.
        groups.remove(KEY)
        groups.add(KEY, watched(""))
        assert add("range", "range", "sticky") == 1

    play(story)


def listed(groups: GroupWatches, *answers: Mapping[int, int]) -> None:
    """Answer the queries of a listing: committed offsets, starts, ends of topic orders by partition."""
    for turn, offsets in enumerate(answers):
        now_ms = turn * QUERY_INTERVAL_MS
        query = groups.next_query(KEY, ["pod-0"], now_ms)
        assert query is not None
        found = [
            pb.PartitionOffset(topic="orders", partition=each, offset=offset)
            for each, offset in offsets.items()
        ]
        groups.query_answered(KEY, query, pb.OrderAnswer(order_id=1, offsets=found), now_ms)


def test_initial_offsets_of_records_in_kafka_are_those_that_a_sidecar_listed_and_replace_no_others(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as coordinator:
        # A coordinator with a log of its own takes offsets of its own topics only.
        rota.create_topics(f"rota://{coordinator.address}", {"orders": 2})

        async def story(groups: GroupWatches, observer: Observer) -> None:
            groups.add(KEY, watched(coordinator.address)._replace(has_log=False))
            await observer.until(lambda: groups.members(KEY) == 0)
            with pytest.raises(Unavailable, match="no sidecar"):
                await groups.commit_initial_offsets(KEY)
            assert groups.is_new(KEY) is None
            listed(groups, {}, {0: 5, 1: 0}, {0: 9, 1: 7})
            assert groups.is_new(KEY) is True
            await groups.commit_initial_offsets(KEY)
            with pytest.raises(Unavailable, match="committed offsets meanwhile"):
                await groups.commit_initial_offsets(KEY)
            assert groups.is_new(KEY) is False
            channels = Channels(lambda: None, insecure=True)
            committed = await RotaGroups(OnlyCoordinator(channels.get(coordinator.address))).committed(
                "shop.orders", ()
            )
            await channels.close()
            assert committed == {Partition("orders", 0): 5, Partition("orders", 1): 0}

        play(story)


def test_a_group_whose_offsets_the_operator_reads_itself_is_not_looked_up(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:

        async def story(groups: GroupWatches, observer: Observer) -> None:
            groups.add(KEY, watched(coordinator.address))
            assert groups.next_query(KEY, ["pod-0"], 0) is None
            assert groups.next_query(OTHER, ["pod-0"], 0) is None

        play(story)


def test_an_answer_to_a_query_before_the_group_was_watched_anew_changes_nothing() -> None:
    async def story(groups: GroupWatches, observer: Observer) -> None:
        groups.add(KEY, watched(""))
        query = groups.next_query(KEY, ["pod-0"], 0)
        assert query is not None
        groups.add(KEY, watched("", topic="payments"))
        groups.query_answered(KEY, query, pb.OrderAnswer(order_id=1), 0)
        groups.remove(KEY)
        groups.query_answered(KEY, query, pb.OrderAnswer(order_id=1), 0)
        assert groups.view(KEY) is None

    play(story)


def test_a_group_is_watched_anew_when_it_changes_and_no_more_once_it_is_removed(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        rota.create_topics(f"rota://{coordinator.address}", {"orders": 3, "payments": 2})

        async def story(groups: GroupWatches, observer: Observer) -> None:
            def partitions() -> int:
                view = groups.view(KEY)
                return 0 if view is None else len(view.partitions)

            groups.add(KEY, watched(coordinator.address))
            await observer.until(lambda: partitions() == 3)
            groups.add(KEY, watched(coordinator.address))
            assert partitions() == 3
            groups.add(KEY, watched(coordinator.address, topic="payments"))
            assert partitions() == 0
            await observer.until(lambda: partitions() == 2)
            groups.remove(KEY)
            assert groups.view(KEY) is None

        play(story)
