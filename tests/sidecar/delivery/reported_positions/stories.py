"""Stories of applications that fetch records with a client of their own, each story once for all backends."""

import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.wiring import wall_ms
from tests.sidecar.delivery.reported_positions.engine import Engine, Record
from tests.sidecar.delivery.reported_positions.reader import At, Reader, numbers_of
from tests.sidecar.delivery.rounds.member import SESSION_MS, freeze
from tests.support.processes import wait_for
from tests.support.sidecar import Deliverer, delivering

WITHIN_S = 60
PARTITIONS = 4
EVERYTHING = frozenset(range(PARTITIONS))
RECORDS = 10
OLDEST_MS = 3_600_000
APART_MS = 60_000
# Between a look at the clock and one at the metrics.
SLACK_S = 10
# In which somebody who is not waited for would have gone on.
HEARTBEATS = 2
QUICKLY, NEVER = "--commit-interval-ms=100", "--commit-interval-ms=600000"
HURRIED = "--rebalance-timeout-ms=3000"


class Stage:
    """Stage of a story: a topic with records a minute apart, and a group of the same name."""

    def __init__(self, folder: Path, engine: Engine, name: str) -> None:
        self.topic = name
        self._folder = folder
        self._engine = engine
        engine.records.make_topic(name, PARTITIONS)
        oldest_ms = wall_ms() - OLDEST_MS
        times_ms = range(oldest_ms, oldest_ms + RECORDS * APART_MS, APART_MS)
        for number in range(PARTITIONS):
            engine.records.produce(name, number, times_ms)

    def sidecar(self, name: str, *flags: str) -> Deliverer:
        """One of the group, not started yet."""
        more = [f"--topics={self.topic}", f"--session-timeout-ms={SESSION_MS}", *self._engine.flags, *flags]
        return Deliverer(self._folder, self._engine.servers, self.topic, more, name=name)

    def read(self, number: int, offset: int) -> list[Record]:
        """Return the records from this offset on, as the application's client reads them."""
        return list(self._engine.records.read(self.topic, number, offset))

    @property
    def committed(self) -> Mapping[int, int]:
        """Return the committed offsets of the group."""
        return self._engine.committed(self.topic, self.topic)

    def wait_for_commits(self, offsets: Mapping[int, int]) -> None:
        """Return when exactly that is committed."""
        wait_for(f"{offsets} is committed", lambda: self.committed == offsets, within_s=WITHIN_S)

    def wait_for_lag(self, sidecar: Deliverer, number: int, records: int) -> None:
        """Return when that is what its metrics tell."""
        wait_for(
            f"{sidecar.name} tells a lag of {records} records",
            lambda: self.lag(sidecar, "records", number) == records,
            within_s=WITHIN_S,
        )

    def lag(self, sidecar: Deliverer, kind: str, number: int) -> float | None:
        """As its metrics tell it."""
        name = f'rota_lag_{kind}{{group="{self.topic}",partition="{number}",topic="{self.topic}"}}'
        return sidecar.metrics().get(name)


def commits_and_lag_follow_what_is_reported(folder: Path, engine: Engine, name: str) -> None:
    """The application is the only one who knows how far it is."""
    stage = Stage(folder, engine, name)
    sidecar = stage.sidecar("one", QUICKLY)
    with delivering(sidecar), Reader(sidecar, name) as reader:
        assert reader.take() == EVERYTHING
        assert reader.positions(*EVERYTHING) == dict.fromkeys(EVERYTHING, 0)
        stage.wait_for_commits(dict.fromkeys(EVERYTHING, 0))
        records = stage.read(0, 0)
        assert [record.offset for record in records] == list(range(RECORDS))

        for position in (4, 7):
            begun_ms = wall_ms()
            reader.report({0: At(position, records[position].timestamp_ms)})
            stage.wait_for_commits(dict.fromkeys(EVERYTHING, 0) | {0: position})
            assert reader.positions(0) == {0: position}
            stage.wait_for_lag(sidecar, 0, RECORDS - position)
            age_s = (begun_ms - records[position].timestamp_ms) / 1000
            lag_s = stage.lag(sidecar, "seconds", 0)
            assert lag_s is not None
            assert age_s <= lag_s <= age_s + SLACK_S
        assert stage.lag(sidecar, "records", 1) == RECORDS
        assert stage.lag(sidecar, "seconds", 1) is None

        reader.report({number: At(RECORDS) for number in EVERYTHING})
        stage.wait_for_commits(dict.fromkeys(EVERYTHING, RECORDS))
        stage.wait_for_lag(sidecar, 0, 0)
        assert stage.lag(sidecar, "seconds", 0) == 0


def who_commits_itself_reports_for_its_lag_alone(folder: Path, engine: Engine, name: str) -> None:
    """And its successor begins at its last commit, whatever it had reported."""
    stage = Stage(folder, engine, name)
    sidecar = stage.sidecar("one", QUICKLY)
    with delivering(sidecar):
        stage.wait_for_lag(sidecar, 0, RECORDS)
        # Where the partitions begin: the sidecar does not know yet that the application will commit.
        stage.wait_for_commits(dict.fromkeys(EVERYTHING, 0))
        with Reader(sidecar, name, commits_itself=True) as reader:
            assert reader.take() == EVERYTHING
            assert reader.positions(*EVERYTHING) == dict.fromkeys(EVERYTHING, 0)
            records = stage.read(0, 0)
            answer = reader.commit({0: 3})
            assert (answer.error_code, answer.message) == (codes.NONE, "")
            begun_ms = wall_ms()
            reader.report({0: At(8, records[8].timestamp_ms)})
            wait_for("it is heard", lambda: reader.positions(0) == {0: 8}, within_s=WITHIN_S)
            stage.wait_for_lag(sidecar, 0, RECORDS - 3)
            lag_s = stage.lag(sidecar, "seconds", 0)
            assert lag_s is not None
            assert 0 <= lag_s - (begun_ms - records[8].timestamp_ms) / 1000 <= SLACK_S
            reader.say_goodbye()
        with Reader(sidecar, name, commits_itself=True) as reader:
            assert reader.take() == EVERYTHING
            assert reader.positions(0) == {0: 3}
            assert stage.committed == dict.fromkeys(EVERYTHING, 0) | {0: 3}


def a_partition_goes_on_where_its_last_owner_said_that_it_was(
    folder: Path, engine: Engine, name: str
) -> None:
    """Another member does not get it before the present owner has acknowledged its revocation."""
    stage = Stage(folder, engine, name)
    first, second = stage.sidecar("first", NEVER), stage.sidecar("second", NEVER)
    with delivering(first), Reader(first, name) as old:
        assert old.take() == EVERYTHING
        assert old.positions(*EVERYTHING) == dict.fromkeys(EVERYTHING, 0)
        stage.wait_for_commits(dict.fromkeys(EVERYTHING, 0))
        old.report({number: At(2 + number) for number in EVERYTHING})
        with delivering(second), Reader(second, name) as new:
            revoking = old.wait(pb.REVOKING)
            going, tenure = min(numbers_of(revoking)), revoking.tenure.number
            assert revoking.deadline_ms > 0
            assert numbers_of(revoking) < EVERYTHING

            wait_for_heartbeats(first)
            assert not any(map(new.was_notified_of, EVERYTHING))
            assert stage.committed == dict.fromkeys(EVERYTHING, 0)

            last = {number: 5 + number for number in numbers_of(revoking)}
            old.report({number: At(position) for number, position in last.items()})
            old.acknowledge(revoking)
            assert new.take() == numbers_of(revoking)
            assert stage.committed == dict.fromkeys(EVERYTHING, 0) | last
            assert new.positions(*last) == last
            assert stage.read(going, last[going])[0].value == str(last[going])
            assert numbers_of(old.wait(pb.REVOKED)) == last.keys()

            answer = old.commit({going: RECORDS})
            assert answer.error_code == codes.ILLEGAL_GENERATION
            assert f"{name}-{going}: ILLEGAL_GENERATION, it was reassigned" in answer.message
            old.report({going: At(RECORDS)}, {going: tenure})
            old.say_goodbye()
            assert stage.committed[going] == last[going]


def who_does_not_acknowledge_in_time_is_waited_for_no_longer(folder: Path, engine: Engine, name: str) -> None:
    """Its partitions go with what it has reported until then, and its late word is heard in silence."""
    stage = Stage(folder, engine, name)
    first, second = (stage.sidecar(each, NEVER, HURRIED) for each in ("first", "second"))
    with delivering(first), Reader(first, name) as old:
        assert old.take() == EVERYTHING
        assert old.positions(*EVERYTHING) == dict.fromkeys(EVERYTHING, 0)
        with delivering(second), Reader(second, name) as new:
            revoking = old.wait(pb.REVOKING)
            going = numbers_of(revoking)
            old.report({number: At(6) for number in going})
            assert new.take() == going
            assert new.positions(*going) == dict.fromkeys(going, 6)
            old.report({number: At(9) for number in going})
            old.acknowledge(revoking)
            assert numbers_of(old.wait(pb.REVOKED)) == going
            assert_refused(old.commit(dict.fromkeys(going, 9)), name, going)
            old.say_goodbye()
            assert stage.committed == dict.fromkeys(EVERYTHING, 0) | dict.fromkeys(going, 6)


def what_is_said_of_a_lost_partition_changes_nothing(folder: Path, engine: Engine, name: str) -> None:
    """A sidecar stands still beyond its session; its application does not notice, and works on."""
    stage = Stage(folder, engine, name)
    first, second = stage.sidecar("first", QUICKLY), stage.sidecar("second", QUICKLY)
    with delivering(first), Reader(first, name) as old:
        assert old.take() == EVERYTHING
        assert old.positions(*EVERYTHING) == dict.fromkeys(EVERYTHING, 0)
        with delivering(second), Reader(second, name) as new:
            revoking = old.wait(pb.REVOKING)
            old.acknowledge(revoking)
            assert new.take() == numbers_of(revoking)
            old.wait(pb.REVOKED)
            lost = dict(old.tenures)
            old.report({number: At(3) for number in lost})
            stage.wait_for_commits(dict.fromkeys(EVERYTHING, 0) | dict.fromkeys(lost, 3))

            freeze(first.process.pid)
            old.report({number: At(8) for number in lost})
            late = old.begin_commit(dict.fromkeys(lost, 9))
            assert new.take() == lost.keys()
            assert new.positions(*lost) == dict.fromkeys(lost, 3)
            new.report({number: At(5) for number in lost})
            theirs = dict.fromkeys(EVERYTHING, 0) | dict.fromkeys(lost, 5)
            stage.wait_for_commits(theirs)

            first.signal(signal.SIGCONT)
            assert_refused(late(), name, lost)
            event = old.wait(pb.LOST)
            assert numbers_of(event) == lost.keys()
            assert event.reason
            # Nothing comes back before the second one lets go of it.
            ended = max(lost.values())
            assert_refused(old.commit(dict.fromkeys(lost, 7), ended), name, lost)
            assert_refused(old.commit(dict.fromkeys(lost, 6)), name, lost)
            assert all(stage.lag(first, "records", number) is None for number in lost)
            old.acknowledge(event)

            new.acknowledge(new.wait(pb.REVOKING))
            back = old.take()
            assert old.positions(*back) == {number: theirs[number] for number in back}
            old.report({number: At(7) for number in back}, dict.fromkeys(back, ended))
            assert_refused(old.commit(dict.fromkeys(back, 7), ended), name, back)
            old.say_goodbye()
            assert old.positions(*back) == {number: theirs[number] for number in back}
            assert stage.committed == theirs


def assert_refused(answer: pb.CommitResponse, topic: str, numbers: Iterable[int]) -> None:
    """All of it, with a sentence that says why."""
    assert answer.error_code == codes.ILLEGAL_GENERATION
    assert {each.partition.partition: each.error_code for each in answer.offsets} == dict.fromkeys(
        numbers, codes.ILLEGAL_GENERATION
    )
    assert answer.message == (
        f"{topic}-{min(numbers)} and 1 more: ILLEGAL_GENERATION, "
        "it was reassigned, to another member or in a new tenure: continue with the present assignment"
    )


def wait_for_heartbeats(sidecar: Deliverer) -> None:
    """Send so many reports that the sidecar cannot have handled all of them before the answer."""
    name = f'rota_heartbeats_total{{group="{sidecar.group}",outcome="ok"}}'
    before = sidecar.metrics()[name]
    sidecar.wait_until(lambda: sidecar.metrics()[name] >= before + HEARTBEATS)
