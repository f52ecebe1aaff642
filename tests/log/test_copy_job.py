"""The copy job on Rota's log: whichever process is killed or late, each record is copied once, and in its order."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import grpc
import pytest

import rota
from tests.log.copiers import Copier, Settings, Standing, command
from tests.log.copies import PARTITIONS, Content, Pair, differences, fill
from tests.log.copy_kills import (
    IN_SOAK,
    Rising,
    Size,
    double_owners,
    drawn,
    kill_while_copying,
    static,
)
from tests.log.owners import group_offsets
from tests.log.relay import Relay
from tests.support.coordinator import QUICK, Coordinator
from tests.support.ports import free_port
from tests.support.workdir import logs

GROUP, SOURCE, TARGET = "copiers", "originals", "copies"
SIZE = Size(records=30_000, kills=6)
RECORDS_OF_A_FIGHT = 4_000
DEFAULTS: Settings = {}


class Job:
    """The server, and who copies."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.coordinator = Coordinator(folder, (*QUICK, f"--listen=127.0.0.1:{port}"))
        self.coordinator.start()
        self.address = f"rota://{self.coordinator.address}"
        rota.create_topics(self.address, {SOURCE: PARTITIONS, TARGET: PARTITIONS})
        # Another way to the server.
        self.relay = Relay(port)
        self._channel = grpc.insecure_channel(self.coordinator.address)
        # How far the group is.
        self.offsets = Rising(lambda: group_offsets(self._channel, GROUP, SOURCE, PARTITIONS))
        self._logs = logs(folder)
        self._owners: list[Copier] = []

    def start(
        self,
        *flags: str,
        address: str = "",
        consumer: Settings,
        producer: Settings = DEFAULTS,
    ) -> Copier:
        name = f"owner-{len(self._owners)}"
        run = command(
            address or self.address,
            SOURCE,
            TARGET,
            consumer={"group_id": GROUP, **consumer},
            producer={"transactional_id": name, **producer},
        )
        self._owners.append(Copier(name, [*run, *flags], self._logs / f"{name}.log", self.offsets))
        return self._owners[-1]

    def kill_the_server(self) -> None:
        self.coordinator.kill()
        self.relay.release()
        self.coordinator.start()

    def kill_the_unheard_server(self) -> None:
        """Kill the server after a write whose response was not sent."""
        self.relay.withhold()
        self._owners[0].wait_until(lambda: self.relay.withheld > 0)
        self.kill_the_server()

    def copies(self, *, read_committed: bool = True) -> Content:
        with rota.LogReader(self.address, read_committed=read_committed) as reader:
            return {
                index: [
                    (record.key, record.value) for batch in reader.read(TARGET, index) for record in batch
                ]
                for index in range(PARTITIONS)
            }

    def close(self) -> None:
        for owner in self._owners:
            owner.process.kill()
        self._channel.close()
        self.coordinator.kill()
        self.relay.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    try:
        yield job
    finally:
        job.close()


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.soak("exactly-once")
def test_a_copy_is_equal_whoever_is_killed(
    job: Job, seed: int, in_soak: bool, counters: Counter[str]
) -> None:
    size = IN_SOAK if in_soak else SIZE
    source = fill(job.address, SOURCE, size.records)
    copiers = [
        job.start(
            address=f"rota://{job.relay.address}",
            consumer=static(number),
            producer={"transactional_id": f"copier-{number}"},
        )
        for number in range(PARTITIONS)
    ]
    kinds = [kill for copier in copiers for kill in (copier.kill, copier.kill_alone)]
    kinds += [job.kill_the_server, job.kill_the_unheard_server]
    chance = random.Random(seed)
    kills = kill_while_copying(copiers, drawn(kinds, size.kills, chance), source.ends, chance)
    counters["kills of the copy on Rota"] = kills

    assert differences(source.content, job.copies()) == []
    assert (sum(map(len, source.content.values())), kills) == size
    assert double_owners(tenure for copier in copiers for tenure in copier.tenures()) == []
    counters["records copied on Rota"] = size.records


class Fight(NamedTuple):
    """
    The step at which the first owner stops, how both are started, and the error that the first receives when it
    continues.
    """

    point: Literal["produced", "offered"]
    refusal: str
    # The settings of both consumers.
    both: Settings
    # What the second does before the first goes on: it copies all the rest, or it stops in mid-transaction too, or it
    # waits for the offsets that the first has brought into its transaction.
    meanwhile: Literal["finishes", "stops", "waits"]
    # Those of the first producer, or of both.
    first: Settings = DEFAULTS
    producer: Settings = DEFAULTS
    # How many partitions the second gets.
    gets: int = PARTITIONS
    what: Standing = "process"


HANGS: Settings = {"max_poll_interval_ms": 2_000}
FREEZES: Settings = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 500}
STATIC: Settings = {"group_instance_id": "owner"}
HURRIES: Settings = {"sidecar_flags": ["--commit-mode=transactional", "--rebalance-timeout-ms=2000"]}
FIGHTS = {
    "its member has left before it brings offsets": Fight("produced", "UNKNOWN_MEMBER_ID", HANGS, "finishes"),
    "its member is gone when it commits": Fight(
        "offered", "UNKNOWN_MEMBER_ID", FREEZES, "waits", what="both"
    ),
    "a partition was taken from it before it brings offsets": Fight(
        "produced", "ILLEGAL_GENERATION", HURRIES, "stops", gets=1, what="thread"
    ),
    "a partition was taken from it when it commits": Fight(
        "offered", "ILLEGAL_GENERATION", HURRIES, "waits", gets=1, what="thread"
    ),
    "its transaction has timed out": Fight(
        "offered", "PRODUCER_FENCED", HANGS, "finishes", first={"transaction_timeout_ms": 3_000}
    ),
    "its name was taken before it brings offsets": Fight("produced", "FENCED_INSTANCE_ID", STATIC, "stops"),
    "its name was taken when it commits": Fight("offered", "FENCED_INSTANCE_ID", STATIC, "waits"),
    "a stranger has its transactional id": Fight(
        "offered", "PRODUCER_FENCED", STATIC, "finishes", producer={"transactional_id": "hijacked"}
    ),
}


@pytest.mark.process
@pytest.mark.soak("exactly-once")
@pytest.mark.parametrize("fight", FIGHTS.values(), ids=FIGHTS.keys())
def test_two_owners_fight_and_the_output_is_there_once(job: Job, fight: Fight) -> None:
    source = fill(job.address, SOURCE, RECORDS_OF_A_FIGHT)
    first = job.start(
        *(f"--stop-at={fight.point}", "--stop-after=3"),
        *(("--holds",) if fight.what == "thread" else ()),
        consumer=fight.both,
        producer={**fight.producer, **fight.first},
    )
    first.wait_until_it_stands(fight.what)
    stops = ("--stop-at=produced", "--stop-after=2") if fight.meanwhile == "stops" else ()
    second = job.start(*stops, consumer=fight.both, producer=fight.producer)
    second.wait_until_owns(fight.gets)
    if fight.meanwhile == "finishes":
        second.wait_until_done(source.ends)
    elif fight.meanwhile == "stops":
        second.wait_until_stopped()

    # On a machine with too much to do it may have lost its membership once before.
    before = len(first.events("refused"))
    first.go_on()
    refused = first.wait_for("refused", before + 1)
    second.go_on()
    second.wait_until_done(source.ends)
    second.finish()
    first.finish()

    assert refused.startswith(fight.refusal)
    assert differences(source.content, job.copies()) == []
    # What the first had produced when it stopped was there already, and does not count.
    everything = job.copies(read_committed=False)
    assert sum(map(len, everything.values())) > sum(map(len, source.content.values()))


# The comparison can fail.

SMALL: dict[int, list[Pair]] = {0: [(b"a", b"0"), (b"a", b"2")], 1: [(None, b"1"), (b"b", b"3")]}


def test_equal_copies_have_no_differences() -> None:
    assert differences(SMALL, {index: list(pairs) for index, pairs in SMALL.items()}) == []


def test_a_missing_record_is_a_difference() -> None:
    assert differences(SMALL, {**SMALL, 1: SMALL[1][:1]}) == [
        "missing: 1 in partition 1, such as (b'b', b'3')"
    ]
    assert differences(SMALL, {0: SMALL[0]}) == ["missing: 2 in partition 1, such as (None, b'1')"]


def test_a_repeated_record_is_a_difference() -> None:
    assert differences(SMALL, {**SMALL, 0: [*SMALL[0], SMALL[0][0]]}) == [
        "too many: 1 in partition 0, such as (b'a', b'0')"
    ]


def test_another_order_is_a_difference() -> None:
    assert differences(SMALL, {**SMALL, 0: SMALL[0][::-1]}) == ["out of order: partition 0 from record 0 on"]


def test_a_record_in_another_partition_is_a_difference() -> None:
    assert len(differences(SMALL, {0: [*SMALL[0], *SMALL[1]], 1: []})) == 2


def test_an_empty_source_is_no_comparison() -> None:
    assert differences({0: [], 1: []}, {0: [], 1: []}) == ["the source is empty: nothing was compared"]


def test_an_offset_that_is_lowered_is_found() -> None:
    read = iter([{0: 5, 1: 1}, {0: 5, 1: 2}, {0: 4, 1: 3}])
    rising = Rising(lambda: next(read))
    assert [rising(), rising()] == [{0: 5, 1: 1}, {0: 5, 1: 2}]
    with pytest.raises(AssertionError, match="partition 0 was lowered: 5 to 4"):
        rising()


def test_two_owners_of_a_partition_in_one_generation_are_found() -> None:
    assert double_owners([("a", 1, [0, 1]), ("b", 2, [1]), ("a", 2, [0]), ("a", 2, [0])]) == []
    assert double_owners([("a", 2, [0, 1]), ("b", 2, [1])]) == ["partition 1 in generation 2: a, b"]
