"""The copy job on Rota's log: whoever is killed or comes late, each record is copied once, and in its order."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

import rota
from tests.log.copiers import WITHIN_S, Copier
from tests.log.copies import PARTITIONS, Content, Pair, differences, fill
from tests.log.copy_worker import SOURCE, TARGET
from tests.log.relay import Relay
from tests.support.coordinator import QUICK, Coordinator
from tests.support.processes import free_port
from tests.support.workdir import logs

RECORDS = 100_000
KILLS_OF_THE_COPIER = 3
RECORDS_OF_A_FIGHT = 4_000


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
        self._logs = logs(folder)
        self._owners: list[Copier] = []

    def start(self, *flags: str) -> Copier:
        name = f"owner-{len(self._owners)}"
        command = [
            *(sys.executable, "-m", "tests.log.copy_worker"),
            *(f"--coordinator={self.coordinator.address}", f"--transactional-id={name}"),
            *flags,
        ]
        self._owners.append(Copier(name, command, self._logs / f"{name}.log"))
        return self._owners[-1]

    def kill_the_server(self) -> None:
        self.coordinator.kill()
        self.relay.release()
        self.coordinator.start()

    def kill_the_unheard_server(self) -> None:
        """After it did what nobody was told of."""
        self.relay.withhold()
        self._owners[0].process.wait_until(lambda: self.relay.withheld > 0, within_s=WITHIN_S)
        self.kill_the_server()

    def copies(self, *, read_committed: bool = True) -> Content:
        with rota.LogReader(self.address, read_committed=read_committed) as reader:
            return {
                index: [
                    (record.key, record.value) for batch in reader.read(TARGET, index) for record in batch
                ]
                for index in range(PARTITIONS)
            }

    def end_of_source(self) -> int:
        """Of all partitions together."""
        with rota.LogReader(self.address) as reader:
            return sum(reader.offsets_at([(SOURCE, index) for index in range(PARTITIONS)], -1).values())

    def close(self) -> None:
        for owner in self._owners:
            owner.process.kill()
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
@pytest.mark.soak("exactly-once")
def test_a_copy_is_equal_whoever_is_killed(job: Job, seed: int) -> None:
    source = fill(job.address, SOURCE, RECORDS)
    copier = job.start("--instance=copier", f"--coordinator={job.relay.address}")
    chance = random.Random(seed)
    kills = [copier.kill] * KILLS_OF_THE_COPIER + [job.kill_the_server, job.kill_the_unheard_server]
    chance.shuffle(kills)
    moments = sorted(chance.sample(range(job.end_of_source() * 2 // 3), len(kills)))
    for moment, kill in zip(moments, kills, strict=True):
        copier.wait_until_copied(moment)
        kill()
    copier.finish()

    assert differences(source, job.copies()) == []
    assert sum(map(len, source.values())) == RECORDS


class Fight(NamedTuple):
    """Where the first owner stops, how the two are started, and what the first is told when it goes on."""

    point: str
    refusal: str
    both: tuple[str, ...]
    # What the second does before the first goes on: it copies all the rest, or it stops in mid-transaction too, or it
    # waits for the offsets that the first has brought into its transaction.
    meanwhile: Literal["finishes", "stops", "waits"]
    first: tuple[str, ...] = ()


DYNAMIC = ("--session-ms=2000",)
STATIC = ("--instance=owner",)
FIGHTS = {
    "its member is gone before it brings offsets": Fight(
        "produced", "UNKNOWN_MEMBER_ID", DYNAMIC, "finishes"
    ),
    "its member is gone when it commits": Fight("offered", "UNKNOWN_MEMBER_ID", DYNAMIC, "waits"),
    "its transaction has timed out": Fight(
        "offered", "PRODUCER_FENCED", DYNAMIC, "finishes", ("--transaction-timeout-ms=3000",)
    ),
    "its name was taken before it brings offsets": Fight("produced", "FENCED_INSTANCE_ID", STATIC, "stops"),
    "its name was taken when it commits": Fight("offered", "FENCED_INSTANCE_ID", STATIC, "waits"),
    "a stranger has its transactional id": Fight(
        "offered", "PRODUCER_FENCED", (*STATIC, "--transactional-id=hijacked"), "finishes"
    ),
}


@pytest.mark.process
@pytest.mark.soak("exactly-once")
@pytest.mark.parametrize("fight", FIGHTS.values(), ids=FIGHTS.keys())
def test_two_owners_fight_and_the_output_is_there_once(job: Job, fight: Fight) -> None:
    source = fill(job.address, SOURCE, RECORDS_OF_A_FIGHT)
    first = job.start(*fight.both, *fight.first, f"--stop-at={fight.point}", "--stop-after=3")
    first.wait_until_stopped()
    stops = ("--stop-at=produced", "--stop-after=2") if fight.meanwhile == "stops" else ()
    second = job.start(*fight.both, *stops)
    second.wait_until_owns_all()
    if fight.meanwhile == "finishes":
        second.finish()
    elif fight.meanwhile == "stops":
        second.wait_until_stopped()

    # On a machine with too much to do it may have lost its membership once before.
    before = len(first.events("refused"))
    first.go_on()
    refused = first.wait_for("refused", before + 1)
    second.go_on()
    second.finish()
    first.finish()

    assert refused.startswith(fight.refusal)
    assert differences(source, job.copies()) == []
    # What the first had produced when it stopped was there already, and does not count.
    everything = job.copies(read_committed=False)
    assert sum(map(len, everything.values())) > sum(map(len, source.values()))


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
