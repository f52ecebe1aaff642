"""
Pods come and go while 200 records a second come: nothing is lost or done twice, and each partition has one owner in a generation.

Workloads are disrupted side by side, in a soak partly in turn, each in a namespace of its own; what breaks nodes comes last, and hits all of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import NamedTuple

import pytest

from tests.cluster.disruptions import acts, nodes
from tests.cluster.disruptions.mixed import mix
from tests.cluster.disruptions.story import Acts, Setting, Story, explained, run_all, run_in_turn
from tests.cluster.disruptions.table import lines
from tests.cluster.disruptions.workloads import (
    HEARTBEAT_S,
    SESSION_S,
    Engines,
    close_story,
    open_story,
    serving_both,
)
from tests.sidecar.delivery.rounds.source import going_on
from tests.support.cluster import Cluster

# The first of them starts the cluster and a broker in it, loads images and waits for Rota's parts.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.paired,
    pytest.mark.soak("pods"),
    pytest.mark.soak("pods-mixed"),
    pytest.mark.timeout(2_700),
]
MIXED, MIXED_S = "pods-mixed", 1_800
# Of all records of half an hour in which pods and nodes are killed, and sidecars commit what is done at once.
REPEATED_MAX = 0.001

# As docs/guide/pods.md promises them on a machine that does nothing else: how long a partition has no owner after an end in good
# order. A rebalance on Kafka is noticed by a heartbeat, and one that moves partitions takes two. The partitions of a static member
# wait for its successor's start instead.
ROTA_CLEAN_MS, KAFKA_CLEAN_MS = 1_000, 2 * HEARTBEAT_S * 1_000 + 1_000
CRASH_MS = (SESSION_S + HEARTBEAT_S + 1) * 1_000
# Work on a record of `flight`: long enough to be caught in the middle of 64.
FLIGHT_MS = 3_000


class Kind(NamedTuple):
    """A kind of workload, and of membership."""

    kind: str
    membership: str

    @property
    def is_static(self) -> bool:
        return self.membership == "static"


# On Rota's coordinator and on Kafka; the seed chooses, and four rounds of a soak have all.
KINDS = (
    (Kind("StatefulSet", "dynamic"), Kind("Deployment", "static")),
    (Kind("Deployment", "static"), Kind("StatefulSet", "dynamic")),
    (Kind("Deployment", "dynamic"), Kind("StatefulSet", "static")),
    (Kind("StatefulSet", "static"), Kind("Deployment", "dynamic")),
)


@pytest.fixture(scope="module")
def engines(rota_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Both, on no node that is broken."""
    with serving_both(rota_cluster, tmp_path_factory.mktemp("coordinator")) as found:
        yield found


class Disrupted(NamedTuple):
    """The workloads whose pods come and go; `flight` has one pod, whose application works on 64 records at a time."""

    cluster: Cluster
    in_soak: bool
    rota: Story
    kafka: Story
    flight: Story

    @property
    def steady(self) -> tuple[Story, Story]:
        """Workloads for which records come all the time."""
        return self.rota, self.kafka

    def run(self, *stories: Acts) -> None:
        """Run stories side by side. An error says what the pods are, and which rules are broken."""
        with self.explained():
            run_all(*stories)

    def run_clean(self, *stories: Acts) -> None:
        """
        Run stories of ends in good order: in a soak one after the other, because it limits the time without an owner as on a machine
        that does nothing else, such as starting the pods of another workload.
        """
        with self.explained():
            (run_in_turn if self.in_soak else run_all)(*stories)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Add the pods and the broken rules to an error."""
        try:
            yield
        except Exception as error:
            for story in (*self.steady, self.flight):
                error.add_note(explained(story))
            raise


@pytest.fixture(scope="module")
def disrupted(
    rota_cluster: Cluster, engines: Engines, seed: int, request: pytest.FixtureRequest
) -> Iterator[Disrupted]:
    """The workloads, applied. Records come until the module has ended."""
    first, second = KINDS[seed % len(KINDS)]
    # A busy machine takes longer: a soak has it for itself.
    suite = request.config.getoption("--soak")
    in_soak, is_mixed = bool(suite), suite == MIXED
    rota_clean_ms = ROTA_CLEAN_MS if in_soak and not first.is_static else None
    kafka_clean_ms = KAFKA_CLEAN_MS if in_soak and not second.is_static else None
    crash_ms = CRASH_MS if in_soak else None
    rota = partial(Setting, engine=engines.rota, servers=engines.rota_servers, commits_at_once=is_mixed)
    settings = (
        rota(
            namespace=f"disrupted-rota-{seed}", kind=first.kind, is_static=first.is_static, clean_ms=rota_clean_ms, crash_ms=crash_ms
        ),
        Setting(
            f"disrupted-kafka-{seed}", second.kind, engines.kafka, engines.kafka_servers, kafka_clean_ms, crash_ms, second.is_static,
            commits_at_once=is_mixed,
        ),
        rota(namespace=f"disrupted-flight-{seed}", kind="Deployment", replicas=1, work_ms=FLIGHT_MS, ordering="unordered"),
    )  # fmt: skip
    with ExitStack() as stack:
        stories = []
        for setting in settings:
            stories.append(open_story(rota_cluster, setting, seed))
            stack.callback(close_story, stories[-1])
        found = Disrupted(rota_cluster, in_soak, *stories)
        # Kafka knows no offsets of a group before it has a coordinator.
        found.run(*(acts.begin(story) for story in stories))
        for story in found.steady:
            stack.enter_context(story.going_on())
        stack.enter_context(going_on(found.flight.watch.steadily))
        yield found


@pytest.fixture
def suite(request: pytest.FixtureRequest) -> str:
    """The suite of a soak; empty in `make test`."""
    return request.config.getoption("--soak") or ""


@pytest.mark.timeout(2_700 + MIXED_S)
def test_pods_are_restarted_deleted_evicted_and_killed(
    disrupted: Disrupted, in_soak: bool, suite: str, seed: int, counters: Counter[str]
) -> None:
    """In the suite of mixed disruptions for half an hour, and nodes too."""
    rota, kafka, flight = disrupted.rota, disrupted.kafka, disrupted.flight
    if suite == MIXED:
        disrupted.run(chain(acts.in_flight(flight, 64), acts.retire(flight)))
        with disrupted.explained():
            counters["rounds of mixed disruptions"] += mix(disrupted.cluster, disrupted.steady, seed, MIXED_S)
        return
    in_order = [acts.delete_pod, acts.evict, acts.rolling_restart]
    killed = [acts.kill_sidecar, acts.kill_app, acts.kill_both]
    in_flight = chain(acts.in_flight(flight, 64), acts.retire(flight))
    if not in_soak:
        disrupted.run(drawn(rota, in_order), drawn(kafka, killed), in_flight)
        return
    disrupted.run(in_flight)
    disrupted.run_clean(*(drawn(story, in_order) for story in disrupted.steady))
    disrupted.run(*(drawn(story, killed) for story in disrupted.steady))


def drawn(story: Story, several: Sequence[Callable[[Story], Acts]]) -> Acts:
    """Return acts in an order that the seed draws."""
    return chain.from_iterable(act(story) for act in story.chance.sample(several, len(several)))


def test_a_node_is_lost_and_those_that_were_replaced_wake_up_fenced(
    disrupted: Disrupted, in_soak: bool
) -> None:
    """By a power cut, which no process survives; in a soak also by a cut of its link."""
    node = nodes.other_than(nodes.of_operator(disrupted.cluster))
    disrupted.run_clean(*(acts.spread(each, node) for each in disrupted.steady))
    with disrupted.explained():
        nodes.cut_power(disrupted.cluster, disrupted.steady, node)
    if in_soak:
        # A rollout, or a deleted pod, brings pods back to the node that was lost before.
        disrupted.run_clean(
            acts.spread(disrupted.rota, node),
            chain(acts.rolling_restart(disrupted.kafka), acts.spread(disrupted.kafka, node)),
        )
        with disrupted.explained():
            nodes.cut_link(disrupted.cluster, disrupted.steady, node)


def test_a_node_is_drained(disrupted: Disrupted) -> None:
    with disrupted.explained():
        nodes.drain(disrupted.cluster, disrupted.steady, nodes.of_operator(disrupted.cluster))


def test_a_rollout_of_a_deployment_caused_no_rebalance(disrupted: Disrupted, in_soak: bool) -> None:
    """A new pod is Ready before an old one is deleted, and takes its member over. In a soak the operator may be away meanwhile."""
    for story in disrupted.steady:
        if story.setting.kind == "Deployment" and not in_soak:
            assert story.rebalances(acts.ROLLING) == 0, story.setting.namespace


def test_nothing_was_lost_or_done_twice_and_each_generation_had_one_owner(
    disrupted: Disrupted, suite: str, report: list[str], counters: Counter[str]
) -> None:
    for story in disrupted.steady:
        story.source.steadily.end()
    disrupted.run(*(iter([story.caught_up()]) for story in disrupted.steady))
    for story in (*disrupted.steady, disrupted.flight):
        report += lines(story)
        counters["disruptions"] += len(story.hits)
        counters["records"] += len(story.source.acknowledged)
        counters["repeated"] += story.repeats()
    faults = [fault for story in (*disrupted.steady, disrupted.flight) for fault in story.faults()]
    assert faults == [], "\n".join(faults)
    if suite == MIXED:
        assert counters["repeated"] <= REPEATED_MAX * counters["records"]
