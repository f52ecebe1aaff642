"""
Processes with bearer tokens: a group with a Java client of the same mechanism, and minutes of renewals without a rebalance.

Lifetimes are 20 s for three minutes in a soak; `make test` has one shorter run.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kafka.oauth_logins import ALLOWED, broker, security
from tests.kafka.sidecar_reading import Writer
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.kafka import Kafka
from tests.support.kafka.consumers import console, wait_for_shares
from tests.support.kafka.oauth import CLIENT_ID, CLIENT_SECRET, Answer, endpoint, unsecured
from tests.support.sidecar import Deliverer, Sidecar, delivering
from tests.support.sidecar import running as running_sidecar

pytestmark = [pytest.mark.kafka, pytest.mark.paired]

PARTITIONS = 4
SESSION_S = 6.0
SOAK_LIFETIME_S, SOAK_S = 20.0, 180.0
RUN_S = 12.0
WITHIN_S = 60
POISON = b"poison"


class Rotation:
    """A token file that is replaced at half of each token's life, by a thread of the test; empty for a moment each time."""

    def __init__(self, file: Path, lifetime_s: float) -> None:
        self.file = file
        self.tokens: list[str] = []
        self._lifetime_s = lifetime_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while True:
            self.tokens.append(unsecured(lifetime_s=self._lifetime_s))
            self.file.write_text(self.tokens[-1])
            if self._ends.wait(self._lifetime_s / 2):
                return
            self.file.write_text("")
            self._ends.wait(0.2)

    def __enter__(self) -> Self:
        self.tokens.append(unsecured(lifetime_s=self._lifetime_s))
        self.file.write_text(self.tokens[-1])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def flags(kafka: Kafka, topic: str, url: str, *more: str) -> tuple[str, ...]:
    ca = security(kafka).ca
    return (
        f"--topics={topic}",
        "--sasl-mechanism=OAUTHBEARER",
        f"--sasl-oauthbearer-token-endpoint-url={url}",
        *([] if ca is None else [f"--tls-ca={ca}"]),
        *more,
    )


def generation_of(member: Sidecar) -> int:
    """The generation that it is in, by its last event that has one."""
    return int([event["generation"] for event in member.events if "generation" in event][-1])


def end_of(kafka: Kafka, topic: str) -> int:
    """The end offset of the topic's only partition."""
    reader = Consumer({**kafka.client_config(), "group.id": "any", "log_level": 0})
    _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=WITHIN_S)
    reader.close()
    return end


@contextmanager
def written_each_second(kafka: Kafka, topic: str) -> Iterator[list[bytes]]:
    """Write a record to each partition each second, some of them poisonous, until the block ends."""
    writer, written, ends = Writer(kafka, topic), list[bytes](), threading.Event()

    def run() -> None:
        while not ends.wait(1):
            for partition in range(PARTITIONS):
                value = POISON if len(written) % 10 == 5 else b"record-%d" % len(written)
                writer.write(value, partition=partition)
                written.append(value)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield written
    finally:
        ends.set()
        thread.join()


@pytest.mark.soak("oauth")
@pytest.mark.parametrize(
    "name", [pytest.param("oauth", marks=pytest.mark.soak("oauth", only=True)), "oauth-tls"]
)
def test_a_group_with_a_java_client_of_the_same_mechanism(tmp_path: Path, name: str) -> None:
    topic = f"{ALLOWED}shared"
    with broker("oauth-tls" if name == "oauth-tls" else "oauth", SESSION_S) as kafka:
        kafka.create_topic(topic, partitions=PARTITIONS)
        with Rotation(tmp_path / "token", 12) as rotation:
            flagged = flags(
                kafka, topic, f"file://{rotation.file}", "--client-id=sidecar", "--assignors=range"
            )
            ours = Sidecar(tmp_path, kafka.bootstrap, topic, flagged)
            java = security(kafka).java_properties(CLIENT_ID)
            with running_sidecar(ours):
                ours.wait_until_it_has(PARTITIONS)
                with console(kafka, topic, topic, "range", tmp_path / "console.log", java):
                    half = PARTITIONS // 2
                    wait_for_shares(kafka, topic, {"sidecar": half, "console-consumer": half})
                    held = ours.wait_until_it_has(half)
                    generation = generation_of(ours)
                    # Longer than sessions of both, and than a token.
                    threading.Event().wait(2.5 * SESSION_S)
                    assert ours.commit(dict.fromkeys(held, 0)) == {}
                    assert ours.partitions == held
                    assert generation_of(ours) == generation
                ours.wait_until_it_has(PARTITIONS)
                assert ours.terminate() == 0
            shown = ours.log + "".join(map(str, ours.events))
            assert not any(token in shown for token in rotation.tokens)


@pytest.mark.soak("oauth")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("source", ["file", "endpoint"])
def test_renewals_and_reauthentications_cause_no_rebalance_and_lose_nothing(
    tmp_path: Path, source: str, *, in_soak: bool, counters: Counter[str]
) -> None:
    lifetime_s, run_s = (SOAK_LIFETIME_S, SOAK_S) if in_soak else (SESSION_S, RUN_S)
    topic, dead_letters = f"{ALLOWED}renewals", f"{ALLOWED}dead-letters"
    # A token lives for longer than a session here: that of a file is replaced at half of its life.
    token_s = lifetime_s if source == "endpoint" and in_soak else 2 * lifetime_s
    with (
        broker("oauth-tls", lifetime_s) as kafka,
        endpoint(lambda: Answer.token(lifetime_s=token_s)) as idp,
        Rotation(tmp_path / "token", token_s) as rotation,
    ):
        kafka.create_topic(topic, partitions=PARTITIONS)
        kafka.create_topic(dead_letters)
        url = idp.url if source == "endpoint" else f"file://{rotation.file}"
        client = [f"--sasl-oauthbearer-client-id={CLIENT_ID}"] if source == "endpoint" else []
        sidecar = Deliverer(
            tmp_path,
            kafka.bootstrap,
            topic,
            flags(kafka, topic, url, f"--dead-letter-topic={dead_letters}", "--retries=0", *client),
            environment={"ROTA_SASL_OAUTHBEARER_CLIENT_SECRET": CLIENT_SECRET},
        )
        app = App(tmp_path, sidecar.address, ['--rules={"poison": "dead-letter"}'])
        with delivering(sidecar), attached(app):
            app.wait_until(lambda: len(app.partitions) == PARTITIONS)
            rebalances = f'rota_rebalances_total{{group="{topic}",kind="assigned"}}'
            before = sidecar.metrics()[rebalances]
            with written_each_second(kafka, topic) as written:
                threading.Event().wait(run_s)
            app.wait_until(lambda: len(app.done) >= len(written))
            done = Counter(app.done)
            assert len(done) == len(written)
            assert set(done.values()) == {1}, "each record is processed once"
            assert sidecar.metrics()[rebalances] == before, "no rebalance"
            assert sidecar.is_ready
            said = [line["message"] for line in sidecar.said]
            assert [each for each in said if "was lost" in each or "closed the connection" in each] == []
            sidecar.wait_until(lambda: end_of(kafka, dead_letters) == written.count(POISON))
            shown = sidecar.process.log.read_text()
            assert sidecar.terminate() == 0
        counters[f"records with tokens of the {source}"] = len(written)
        counters[f"tokens of the {source}"] = len(idp.requests if source == "endpoint" else rotation.tokens)
        assert CLIENT_SECRET not in shown
        assert not any(token in shown for token in rotation.tokens)
