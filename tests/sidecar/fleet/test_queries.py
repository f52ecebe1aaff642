"""QueryOffsets: offsets of any partition, owned or not; an unknown offset is absent, never zero."""

import asyncio
from pathlib import Path

import pytest

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.fleet.queries import PARTITIONS_MAX
from tests.sidecar.fleet.headquarters import Headquarters
from tests.sidecar.fleet.stories import RECORDS, run_story
from tests.support.app import App
from tests.support.coordinator import Coordinator
from tests.support.records import AT_MS, batch, delete_records, fill, produce
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.process
COMMITTED, START = pb.OFFSET_KIND_COMMITTED, pb.OFFSET_KIND_START
END, TIMESTAMP = pb.OFFSET_KIND_END, pb.OFFSET_KIND_TIMESTAMP
Offsets = dict[tuple[str, int], int]


def of(topic: str, *partitions: int) -> pb.TopicPartitions:
    return pb.TopicPartitions(topic=topic, partitions=partitions)


class Asking:
    """Queries of one headquarters, each under the next id."""

    def __init__(self, fleet: Headquarters) -> None:
        self._fleet = fleet
        self._number = 100

    async def answer(
        self,
        what: pb.OffsetKind.ValueType,
        *topics: pb.TopicPartitions,
        timestamp_ms: int = 0,
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.OrderAnswer:
        self._number += 1
        query = pb.QueryOffsets(
            topics=topics, what=what, timestamp_ms=timestamp_ms, page_size=page_size, page_token=page_token
        )
        return await self._fleet.order(self._number, query_offsets=query)

    async def offsets(
        self, what: pb.OffsetKind.ValueType, *topics: pb.TopicPartitions, timestamp_ms: int = 0
    ) -> Offsets:
        answer = await self.answer(what, *topics, timestamp_ms=timestamp_ms)
        assert (answer.error, list(answer.errors)) == ("", [])
        return {(each.topic, each.partition): each.offset for each in answer.offsets}


def test_every_kind_of_offset_is_found(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    other = f"{topic}-other"

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        ask = Asking(fleet)
        committed = {(topic, 0): RECORDS, (topic, 1): RECORDS}
        await fleet.wait_until(lambda: [each.committed for each in fleet.last.partitions] == [RECORDS] * 2)
        assert await ask.offsets(COMMITTED) == committed
        assert await ask.offsets(COMMITTED, of(topic, 1)) == {(topic, 1): RECORDS}
        assert await ask.offsets(COMMITTED, of(other)) == {}, "nothing is committed, and nothing is zero"
        delete_records(coordinator.address, topic, 0, 7)
        assert await ask.offsets(START) == {(topic, 0): 7, (topic, 1): 0}
        produce(coordinator.address, other, 2, batch(["late"], at_ms=AT_MS + 500))
        assert await ask.offsets(END, of(topic, 0), of(other)) == {
            (topic, 0): RECORDS,
            (other, 0): 0,
            (other, 1): 0,
            (other, 2): 1,
        }
        answer = await ask.answer(START, of(topic, 0), of(other, 2))
        ids = {each.topic: each.topic_id for each in answer.topic_ids}
        assert {name: len(topic_id) for name, topic_id in ids.items()} == {topic: 16, other: 16}
        assert ids[topic] != ids[other]
        late = await ask.offsets(TIMESTAMP, of(topic), of(other), timestamp_ms=AT_MS + 1)
        assert late == {(other, 2): 0}, "the others have no such record"

    coordinator.make_topic(other, 3)
    run_story(tmp_path, coordinator, topic, story)


def test_what_does_not_exist_is_named_and_the_rest_is_answered(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        answer = await Asking(fleet).answer(END, of(topic, 1, 2, -5), of("never-made"))
        assert answer.error == ""
        assert [(each.partition, each.offset) for each in answer.offsets] == [(1, RECORDS)]
        wrong = [(topic, -5), (topic, 2), ("never-made", -1)]
        assert [(each.topic, each.partition) for each in answer.errors] == sorted(wrong)
        assert {each.message for each in answer.errors} == {
            "the topic does not exist; create it",
            "the partition does not exist; the topic has 2",
        }

    run_story(tmp_path, coordinator, topic, story, begins=False)


def test_a_query_that_cannot_be_executed_is_refused_with_the_reason(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        ask = Asking(fleet)
        assert "`what` must be" in (await ask.answer(pb.OFFSET_KIND_UNSPECIFIED)).error
        assert "timestamp_ms is -2" in (await ask.answer(TIMESTAMP, timestamp_ms=-2)).error
        assert "invalid topic name" in (await ask.answer(END, of("a b"))).error
        assert "listed twice" in (await ask.answer(END, of(topic, 0), of(topic, 1))).error
        many = of(topic, *range(PARTITIONS_MAX + 1))
        assert f"expected at most {PARTITIONS_MAX}" in (await ask.answer(END, many)).error
        coordinator.make_topic(f"{topic}-wide", PARTITIONS_MAX + 1)
        assert f"at most {PARTITIONS_MAX}" in (await ask.answer(END, of(f"{topic}-wide"))).error
        assert "page_size is -1" in (await ask.answer(END, page_size=-1)).error
        assert "page token is invalid" in (await ask.answer(END, page_size=1, page_token=topic)).error

    run_story(tmp_path, coordinator, topic, story, begins=False)


def test_pages_have_every_partition_once_also_of_a_topic_that_one_page_does_not_hold(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    wide = f"{topic}-wide"

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        ask = Asking(fleet)
        coordinator.make_topic(wide, PARTITIONS_MAX + 1)
        # More than fit into an answer are those of a page too.
        first = await ask.answer(END, page_size=PARTITIONS_MAX + 1)
        second = await ask.answer(END, page_size=PARTITIONS_MAX + 1, page_token=first.next_page_token)
        assert [len(each.offsets) for each in (first, second)] == [PARTITIONS_MAX, 3]
        assert (first.error, second.error, second.next_page_token) == ("", "", "")
        found = [(each.topic, each.partition) for page in (first, second) for each in page.offsets]
        assert found == sorted(
            [(topic, 0), (topic, 1), *((wide, number) for number in range(PARTITIONS_MAX + 1))]
        )
        assert {each.topic for each in second.topic_ids} == {wide}
        # What does not exist is on the first page alone.
        missing = f"{topic}-never-made"
        named = (of(topic), of(missing))
        first = await ask.answer(START, *named, page_size=1)
        second = await ask.answer(START, *named, page_size=1, page_token=first.next_page_token)
        assert [[each.topic for each in page.errors] for page in (first, second)] == [[missing], []]
        assert [each.partition for page in (first, second) for each in page.offsets] == [0, 1]

    flags = ("--topics=", f"--topic-pattern={topic}.*")
    run_story(tmp_path, coordinator, topic, story, *flags, begins=False)


def test_long_answers_come_in_several_reports_and_none_is_lost(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    wide = "w" * 240

    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        ask = Asking(fleet)
        answers = await asyncio.gather(*(ask.offsets(START, of(wide)) for _ in range(4)))
        assert {len(answer) for answer in answers} == {PARTITIONS_MAX}
        assert max(report.ByteSize() for report in fleet.reports) < 4 << 20

    coordinator.make_topic(wide, PARTITIONS_MAX)
    run_story(tmp_path, coordinator, topic, story, begins=False)


def test_a_sidecar_that_is_no_member_answers_too(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        assert fleet.last.member.state == pb.MEMBER_STATE_DOWN, "it waits for a name"
        ask = Asking(fleet)
        assert await ask.offsets(END) == {(topic, 0): RECORDS, (topic, 1): RECORDS}
        assert await ask.offsets(COMMITTED) == {}

    run_story(tmp_path, coordinator, topic, story, "--static", begins=False)


def test_topics_of_a_pattern_are_those_that_match_now(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        coordinator.make_topic(f"{topic}-x", 1)
        fill(coordinator.address, f"{topic}-x", 1, 3)
        assert (await Asking(fleet).offsets(END))[f"{topic}-x", 0] == 3

    flags = ("--topics=", f"--topic-pattern={topic}.*")
    run_story(tmp_path, coordinator, topic, story, *flags, begins=False)


def test_without_a_subscription_a_query_has_to_name_its_topics(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(fleet: Headquarters, sidecar: Deliverer, app: App) -> None:
        await fleet.wait_until(lambda: bool(fleet.reports))
        ask = Asking(fleet)
        assert "no subscription; name the topics" in (await ask.answer(END)).error
        assert await ask.offsets(END, of(topic, 1)) == {(topic, 1): RECORDS}
        assert await ask.offsets(COMMITTED, of(topic)) == {}

    run_story(tmp_path, coordinator, topic, story, "--topics=", begins=False)
