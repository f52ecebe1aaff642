"""Producers and the server are killed at any moment: what was acknowledged is there, once, and in its order."""

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import rota
from tests.log.crash_history import CHUNKS_OF_A_LIFE, Fetch, History, Line, Sent, Stored, lines_of
from tests.log.crash_producer import PARTITIONS, TOPIC
from tests.log.crash_reader import fetches_in
from tests.log.relay import Relay
from tests.support.coordinator import QUICK, Coordinator
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.workdir import logs

RECORDS = 200_000
TRANSACTIONAL = "transactional"
NAMES = ("first", "second", TRANSACTIONAL)
KILLS_OF_PRODUCERS = 6
KILLS_UNHEARD = 2
WITHIN_S = 120
KILLED = -9


class Crashes:
    """The server, its producers, and who reads."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self._logs = logs(folder)
        port = free_port()
        self.coordinator = Coordinator(folder, (*QUICK, f"--listen=127.0.0.1:{port}"))
        self.coordinator.start()
        self.address = f"rota://{self.coordinator.address}"
        rota.create_topics(self.address, {TOPIC: PARTITIONS})
        # Between the producers and the server.
        self.relay = Relay(port)
        self.finish = folder / "finish"
        self.fetched = folder / "fetched"
        self.reader = self._start(
            "reader",
            "tests.log.crash_reader",
            f"--address={self.address}",
            f"--event-log={self.event_log(TRANSACTIONAL)}",
            f"--output={self.fetched}",
            f"--finish={self.finish}",
        )
        self.producers = {name: self.start_producer(name) for name in NAMES}

    def event_log(self, name: str) -> Path:
        return self.folder / f"{name}.events"

    def start_producer(self, name: str) -> Process:
        count = len(range(NAMES.index(name), RECORDS, len(NAMES)))
        flags = [
            *(f"--address=rota://{self.relay.address}", f"--name={name}", f"--records={count}"),
            *(f"--event-log={self.event_log(name)}", f"--seed={self.chance.random()}"),
        ]
        if name == TRANSACTIONAL:
            flags.append("--transactional")
        return self._start(name, "tests.log.crash_producer", *flags)

    def _start(self, name: str, module: str, *flags: str) -> Process:
        command = [sys.executable, "-m", module, *flags]
        return Process.start(name, command, log=self._logs / f"{name}.log")

    def acknowledged(self) -> int:
        """So far, of all of them."""
        for producer in self.producers.values():
            if producer.exit_code != 0:
                producer.check_running()
        return sum(
            max((line.end for line in lines_of(self.event_log(name)) if line.word == "done"), default=0)
            for name in NAMES
            if self.event_log(name).exists()
        )

    def wait_for(self, acknowledged: int) -> None:
        self.reader.wait_until(lambda: self.acknowledged() >= acknowledged, within_s=WITHIN_S)

    def kill_a_producer(self) -> None:
        """One that has something left to do."""
        running = [name for name in NAMES if self.producers[name].exit_code is None]
        name = self.chance.choice(running)
        self.producers[name].kill()
        assert self.producers[name].exit_code == KILLED
        self.producers[name] = self.start_producer(name)

    def kill_the_server(self) -> None:
        """Sometimes a producer dies while it is away."""
        self.coordinator.kill()
        self.relay.release()
        if self.chance.random() < 0.5:
            self.kill_a_producer()
        self.coordinator.start()

    def kill_the_unheard_server(self) -> None:
        """Kill the server after a write whose response was not sent."""
        self.relay.withhold()
        self.reader.wait_until(lambda: self.relay.withheld > 0, within_s=WITHIN_S)
        self.kill_the_server()

    def end(self) -> None:
        """Everything is sent, and read."""
        self.wait_for(RECORDS)
        for producer in self.producers.values():
            assert producer.wait(within_s=WITHIN_S) == 0, producer.tail()
        self.finish.touch()
        assert self.reader.wait(within_s=WITHIN_S) == 0, self.reader.tail()

    def history(self) -> History:
        return History(
            {name: lines_of(self.event_log(name)) for name in NAMES},
            TRANSACTIONAL,
            self.stored(read_committed=True),
            self.stored(read_committed=False),
            list(fetches_in(self.fetched)),
        )

    def stored(self, *, read_committed: bool) -> list[list[Stored]]:
        with rota.LogReader(self.address, read_committed=read_committed) as reader:
            return [
                [
                    Stored(record.offset, Sent.of(record.value or b""))
                    for batch in reader.read(TOPIC, index)
                    for record in batch
                ]
                for index in range(PARTITIONS)
            ]

    def close(self) -> None:
        for process in (*self.producers.values(), self.reader):
            process.kill()
        self.coordinator.kill()
        self.relay.close()


@pytest.mark.process
@pytest.mark.soak("exactly-once")
def test_what_was_acknowledged_is_there_once_and_in_order_whoever_is_killed(
    tmp_path: Path, seed: int, counters: Counter[str]
) -> None:
    crashes = Crashes(tmp_path, seed)
    try:
        kills = [crashes.kill_a_producer] * KILLS_OF_PRODUCERS
        kills += [crashes.kill_the_server, *[crashes.kill_the_unheard_server] * KILLS_UNHEARD]
        crashes.chance.shuffle(kills)
        moments = sorted(crashes.chance.sample(range(RECORDS * 2 // 3), len(kills)))
        for moment, kill in zip(moments, kills, strict=True):
            crashes.wait_for(moment)
            kill()
            counters["kills of producers and their server"] += 1
        crashes.end()
        history = crashes.history()
    finally:
        crashes.close()

    assert history.faults() == []
    acknowledged = [(sent.producer, sent.item) for sent in history.acknowledged()]
    assert len(acknowledged) == len(set(acknowledged)) == RECORDS
    kinds = [line.word for lines in history.event_logs.values() for line in lines]
    assert kinds.count("life") > len(NAMES)
    assert kinds.count("abort") > 0
    # The reader was there all the time, not only in the end.
    assert len({fetch.event_log_size for fetch in history.fetches}) > 10


# The rules themselves can fail.

ALONE = "alone"
LIFE = CHUNKS_OF_A_LIFE


def mine(chunk: int, *items: int) -> list[Sent]:
    return [Sent(ALONE, LIFE + chunk, item) for item in items]


def taken(chunk: int, *items: int) -> list[Sent]:
    """Of a transaction."""
    return [Sent(TRANSACTIONAL, LIFE + chunk, item) for item in items]


def stored(*sent: Sequence[Sent]) -> list[Stored]:
    """One after the other, with a marker behind each chunk."""
    found: list[Stored] = []
    offset = 0
    for chunk in sent:
        for each in chunk:
            found.append(Stored(offset, each))
            offset += 1
        offset += 1
    return found


def good_history() -> History:
    """Offsets: 0 1 acknowledged, 3 4 committed, 6 aborted, 8 acknowledged."""
    everything = stored(mine(0, 0, 1), taken(0, 0, 1), taken(1, 2), mine(1, 2))
    seen = [each for each in everything if each.offset != 6]
    event_logs = {
        ALONE: [
            Line("life", LIFE, 0, 0, 10),
            Line("done", LIFE, 0, 2, 20),
            Line("done", LIFE + 1, 2, 3, 30),
        ],
        TRANSACTIONAL: [
            Line("life", LIFE, 0, 0, 10),
            Line("commit", LIFE, 0, 2, 20),
            Line("done", LIFE, 0, 2, 30),
            Line("abort", LIFE + 1, 2, 3, 40),
        ],
    }
    fetches = [
        Fetch(0, 3, 3, 10, mine(0, 0, 1)),
        Fetch(0, 6, 6, 20, taken(0, 0, 1)),
        Fetch(0, 9, 9, 40, mine(1, 2)),
    ]
    return History(event_logs, TRANSACTIONAL, [seen], [everything], fetches)


def rules_broken(history: History) -> set[str]:
    return {fault.split(":")[0] for fault in history.faults()}


def test_a_good_history_breaks_no_rule() -> None:
    assert good_history().faults() == []


def test_a_lost_record_is_found() -> None:
    good = good_history()
    assert "lost" in rules_broken(replace(good, committed=[good.committed[0][:-1]]))


def test_a_record_that_is_there_twice_is_found() -> None:
    good = good_history()
    twice = [*good.everything[0], Stored(10, good.everything[0][-1].sent)]
    assert rules_broken(replace(good, everything=[twice])) == {"repeated"}


def test_records_in_another_order_are_found() -> None:
    good = good_history()
    first, second, *rest = good.everything[0]
    swapped = [Stored(first.offset, second.sent), Stored(second.offset, first.sent), *rest]
    assert rules_broken(replace(good, everything=[swapped])) == {"out_of_order"}


def test_half_a_transaction_is_found() -> None:
    good = good_history()
    half = [each for each in good.committed[0] if each.offset != 4]
    assert "torn" in rules_broken(replace(good, committed=[half]))


def test_an_aborted_record_is_found_also_if_it_was_seen_for_a_moment() -> None:
    good = good_history()
    fetches = [*good.fetches, Fetch(0, 9, 9, 40, taken(1, 2))]
    assert "aborted" in rules_broken(replace(good, fetches=fetches))
    assert "aborted" in rules_broken(replace(good, committed=good.everything))


def test_a_reader_that_got_something_else_is_found() -> None:
    good = good_history()
    assert rules_broken(replace(good, fetches=good.fetches[:-1])) == {"other_for_readers"}


def test_a_reader_that_passes_an_open_transaction_is_found_whatever_it_received() -> None:
    good = good_history()
    early = [good.fetches[0], good.fetches[1]._replace(event_log_size=19), good.fetches[2]]
    assert rules_broken(replace(good, fetches=early)) == {"past_the_last_stable_offset"}
    said = [good.fetches[0]._replace(last_stable_offset=2), *good.fetches[1:]]
    assert rules_broken(replace(good, fetches=said)) == {"past_the_last_stable_offset"}
