"""
Scale two Deployments in one cluster side by side: plain confluent-kafka consumers by the real KEDA, and a ConsumerGroup by Rota's autoscaler.

The claim: fewer rebalances, less time without an owner, fewer records processed again, records late for no longer, no more pods. Broker,
nodes and pods are real; KEDA's operator and metrics adapter are those of its Go module, and the HorizontalPodAutoscaler is that of the
controller-manager, at its default interval. Both Deployments get the same records at the same times, each in a topic of its own, and work for
182 ms on each record, one after the other. Both autoscalers have their defaults, and the same bounds; so have both groups, which use
cooperative-sticky assignment.

The model of `tests.simulation.autoscaling` runs the same trace with both autoscalers beside it: a curve's difference is the area between both
curves, as a share of the area below the model's.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.peers import page
from benchmarks.replay import LEAST, Curve, Point, difference, mean_of, schedule_of
from scripts import time_chart
from tests.cluster.disruptions import scores
from tests.cluster.disruptions.lives import Life, Lives
from tests.cluster.disruptions.plain import ONE_BY_ONE
from tests.cluster.disruptions.scores import Sample, Score, Span
from tests.cluster.disruptions.story import EVERYTHING, Setting
from tests.cluster.disruptions.workloads import (
    APPLICATION_ONE_BY_ONE,
    event_folders,
    plain_workload,
    workload,
)
from tests.kafka.delivery_engines import KafkaEngine
from tests.simulation.autoscaling.figures import RECORDS_PER_S
from tests.simulation.autoscaling.hpa import SYNC_S
from tests.simulation.autoscaling.keda import KafkaTrigger
from tests.simulation.autoscaling.run import LAG_SLA_S, run
from tests.simulation.autoscaling.traces import MINUTE, PARTITIONS, STEP_S, Trace, arrivals_of
from tests.support import kafka as kafka_support
from tests.support import keda as keda_support
from tests.support import rota_images
from tests.support.cluster import Cluster, images
from tests.support.cluster.cluster import remove_leftovers, running
from tests.support.cluster.fixtures import deploy_rota, serve_consumer_groups
from tests.support.cluster.manifests import Manifest
from tests.support.keda.manifests import kafka_trigger, scaled_object
from tests.support.keda.running import SCALED_OBJECTS, Keda
from tests.support.processes import steady_ms, wait_for
from tests.support.workdir import workdir

DURATION_S, QUICK_S = 15 * MINUTE, 4 * MINUTE
# Starts of cluster, KEDA and Rota; and for each trace the starts and the ends of both workloads. KEDA's first build is not part of it.
STARTS_S, AROUND_S = 60, 60
SEED, MODEL_RUNS = 1, 10
INITIAL = 2
WORK_MS = round(1000 / RECORDS_PER_S)
WITHIN_S, POLL_S, SAMPLE_S = 240, 0.5, 1.0
NAME = "orders"
ROTA, KEDA = "Rota", "KEDA"
# Kafka's defaults, unlike in tests: a busy machine must not fence its only broker.
BROKER = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}


def _step(at_s: float, _drawn: float) -> float:
    return 24 if 2 * MINUTE <= at_s < 7 * MINUTE else 6


def _burst(at_s: float, _drawn: float) -> float:
    return 24 if at_s % (2 * MINUTE) >= MINUTE and at_s % (2 * MINUTE) < MINUTE + 20 else 6


RACED = (
    Trace("step", DURATION_S, _step, "6/s, for 5 minutes 24/s, and 6/s again"),
    Trace("burst", DURATION_S, _burst, "6/s, and every 2 minutes 24/s for 20 s"),
)


def say(what: str) -> None:
    """Show the progress."""
    print(f"{time.strftime('%X')}  {what}", flush=True)


# --------------------------------------------------------------------------------------------- workloads


class Environment(NamedTuple):
    """The cluster with Rota, KEDA and a broker."""

    cluster: Cluster
    keda: Keda
    kafka: kafka_support.Kafka
    engine: KafkaEngine


class Side(NamedTuple):
    """A Deployment that one of the systems scales, and what its applications did."""

    system: str
    cluster: Cluster
    setting: Setting
    lives: Lives

    def is_shared(self) -> bool:
        """Return whether the initial replicas own the partitions in equal shares."""
        shares = [life.partitions for life in self.lives.running() if life.partitions]
        return (
            frozenset().union(*shares) == EVERYTHING
            and [len(each) for each in shares] == [PARTITIONS // INITIAL] * INITIAL
        )

    def is_scaled(self) -> bool:
        """Return whether the autoscaler has begun."""
        if self.system == KEDA:
            found = self.cluster.get(f"horizontalpodautoscaler/keda-hpa-{NAME}", namespace=self.namespace)
        else:
            found = self.cluster.get(f"consumergroup/{NAME}", namespace=self.namespace)
        conditions = found.get("status", {}).get("conditions") or ()
        return ("ScalingActive", "True") in [(each["type"], each["status"]) for each in conditions]

    @property
    def namespace(self) -> str:
        return self.setting.namespace

    def sample(self, at_s: float) -> Sample:
        """Look at the Deployment and its pods."""
        desired = self.cluster.get(f"deployment/{NAME}", namespace=self.namespace)["spec"]["replicas"]
        pods = self.cluster.get("pods", namespace=self.namespace)["items"]
        return Sample(at_s, int(desired), len(pods))

    def generation(self) -> int:
        """Return the group's generation; of plain consumers the highest one that they have seen."""
        if self.system == KEDA:
            events = (event for life in self.lives.read() for event in life.events)
            return scores.generation(events, steady_ms())
        found = self.cluster.get(f"consumergroup/{NAME}", namespace=self.namespace)
        return int(found["status"]["generation"])

    def changes(self) -> list[str]:
        """Return the changes that Rota has decided on with their reasons and inputs, the oldest first; KEDA says none."""
        if self.system == KEDA:
            return []
        found = self.cluster.get(f"consumergroup/{NAME}", namespace=self.namespace)
        decisions = (found["status"].get("scaling") or {}).get("decisions") or ()
        return [
            f"{each['reason']}: {each['replicas']} to {each['recommendation']}, {each['inputs']}"
            for each in reversed(decisions)
            if each["recommendation"] != each["replicas"]
        ]

    def processed(self) -> list[tuple[int, int]]:
        """Return number and time of each record that was processed, as often as it was."""
        return list(scores.processed_by(self.lives.read()))

    def has_processed(self, records: int) -> bool:
        """Return whether so many different records were processed."""
        return len({number for number, _ in self.processed()}) == records


def consumer_group(setting: Setting) -> Manifest:
    """Return a ConsumerGroup with defaults: sessions of 45 s, commits each 5 s, as those of the plain consumers are."""
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": NAME},
        "spec": {
            "bootstrapServers": [setting.servers],
            "topics": [setting.topic],
            "replicas": INITIAL,
            "scaleTargetRef": {"name": NAME},
            "delivery": {"ordering": setting.ordering, "concurrency": 1},
            "autoscaling": {"enabled": True, "maxReplicaCount": PARTITIONS},
        },
    }


def manifests_of(system: str, setting: Setting) -> list[Manifest]:
    """Return the Deployment, and the ConsumerGroup."""
    image = images.part("cli").name
    if system == KEDA:
        return [plain_workload(setting, image, {})]
    arguments = (setting.topic, str(setting.work_ms), setting.ordering)
    return [consumer_group(setting), workload(setting, image, APPLICATION_ONE_BY_ONE, *arguments)]


@contextmanager
def deployed(cluster: Cluster, system: str, setting: Setting) -> Iterator[Side]:
    """The Deployment, shared by its initial replicas; scaled from then on. Its namespace has gone at the end."""
    setting.engine.make_topic(setting.topic, PARTITIONS)
    side = Side(system, cluster, setting, Lives(event_folders(cluster, setting.namespace)))
    cluster.create_namespace(setting.namespace)
    try:
        cluster.apply(manifests_of(system, setting), namespace=setting.namespace)
        wait_for(f"{system}: equal shares", side.is_shared, within_s=WITHIN_S, poll_s=POLL_S)
        if system == KEDA:
            trigger = kafka_trigger(setting.servers, setting.group_id, setting.topic)
            scaled = scaled_object(NAME, {"name": NAME}, trigger, (1, PARTITIONS))
            cluster.apply(scaled, namespace=setting.namespace)
            cluster.wait(f"{SCALED_OBJECTS}/{NAME}", "condition=Ready", namespace=setting.namespace)
        yield side
    finally:
        cluster.kubectl("delete", "namespace", setting.namespace)


def setting_of(system: str, trace: Trace, engine: KafkaEngine, servers: str) -> Setting:
    """Return names and work of a Deployment."""
    is_plain = system == KEDA
    return Setting(
        namespace=f"{trace.name}-{system.lower()}",
        kind="Deployment",
        engine=engine,
        servers=servers,
        replicas=INITIAL,
        work_ms=WORK_MS,
        ordering=ONE_BY_ONE if is_plain else "partition",
        name=NAME,
        is_adopted=not is_plain,
    )


# ------------------------------------------------------------------------------------------------- trace


class Sender:
    """Sends each record to all topics at its time, in a thread, from the begin of its block on. Values are the numbers of the records."""

    def __init__(
        self, config: Mapping[str, object], topics: Sequence[str], schedule: Sequence[tuple[float, int]]
    ) -> None:
        # By number.
        self.sent_ms: dict[int, int] = {}
        self.began_ms = 0
        self._topics, self._schedule = topics, schedule
        self._refused: list[KafkaError] = []
        self._producer = Producer({**config, "linger.ms": 0})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self.began_ms = steady_ms()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(WITHIN_S)
        assert not left, f"{left} records were not acknowledged"
        self.check()

    def check(self) -> None:
        """Raise AssertionError if a record was not written."""
        assert not self._refused, self._refused[0]

    def _run(self) -> None:
        for number, (at_s, partition) in enumerate(self._schedule):
            if self._stopping.wait(max(0.0, at_s - (steady_ms() - self.began_ms) / 1000)):
                return
            self.sent_ms[number] = steady_ms()
            for topic in self._topics:
                value = str(number).encode()
                self._producer.produce(topic, value, partition=partition, on_delivery=self._acknowledge)
            self._producer.poll(0)

    def _acknowledge(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error)


class Raced(NamedTuple):
    """Outcome of one side: its costs, and its curves at the ends of the model's steps and at each sample."""

    score: Score
    curve: Curve
    samples: Sequence[Sample]
    lag: Sequence[tuple[float, float]]


def raced(
    around: Environment, trace: Trace, schedule: Sequence[tuple[float, int]], sides: Sequence[Side]
) -> Mapping[str, Raced]:
    """Send the records of a trace to both sides; returns the outcomes once everything is processed."""
    for side in sides:
        wait_for(f"{side.system}: an active autoscaler", side.is_scaled, within_s=WITHIN_S, poll_s=POLL_S)
    generations = {side.system: side.generation() for side in sides}
    samples: dict[str, list[Sample]] = {side.system: [] for side in sides}
    topics = [side.setting.topic for side in sides]
    with Sender(around.kafka.client_config(), topics, schedule) as sender:
        while (at_s := (steady_ms() - sender.began_ms) / 1000) < trace.duration_s:
            for side in sides:
                samples[side.system].append(side.sample(at_s))
            sender.check()
            around.keda.check()
            time.sleep(max(0.0, at_s + SAMPLE_S - (steady_ms() - sender.began_ms) / 1000))
    span = Span(sender.began_ms, sender.began_ms + trace.duration_s * 1000)
    rebalances = {side.system: side.generation() - generations[side.system] for side in sides}
    say("  all records are sent")
    found = {}
    for side in sides:
        processed = partial(side.has_processed, len(sender.sent_ms))
        wait_for(f"{side.system}: all records processed", processed, within_s=WITHIN_S, poll_s=POLL_S)
        found[side.system] = outcome(
            side, sender.sent_ms, span, samples[side.system], rebalances[side.system]
        )
    return found


def outcome(
    side: Side, sent_ms: Mapping[int, int], span: Span, samples: Sequence[Sample], rebalances: int
) -> Raced:
    """Compute costs and curves."""
    lives: Sequence[Life] = side.lives.read()
    processed = side.processed()
    done_ms = scores.first_times(processed)
    score = Score(
        rebalances=rebalances,
        unowned_s=scores.unowned_s([(each.name, each.notices(EVERYTHING)) for each in lives], span),
        repeated=scores.repeated(processed, span),
        late_s=scores.late_s(sent_ms, done_ms, span, LAG_SLA_S),
        pod_minutes=scores.pod_minutes(samples, span.duration_s),
    )
    ends_s = [STEP_S * (number + 1) for number in range(int(span.duration_s) // STEP_S)]
    lags = scores.lags(sent_ms, done_ms, [span.began_ms + at_s * 1000 for at_s in ends_s])
    curve = [
        Point(at_s, [each.desired for each in samples if each.at_s <= at_s][-1], lag)
        for at_s, lag in zip(ends_s, lags, strict=True)
    ]
    times_ms = [span.began_ms + each.at_s * 1000 for each in samples]
    lag = [
        (each.at_s, float(count))
        for each, count in zip(samples, scores.lags(sent_ms, done_ms, times_ms), strict=True)
    ]
    return Raced(score, curve, samples, lag)


# ------------------------------------------------------------------------------------------------- table


class Modelled(NamedTuple):
    """Means of the model's runs."""

    rebalances: float
    late_s: float
    pod_minutes: float
    curve: Curve


def modelled(trace: Trace, arrivals: Sequence[Sequence[float]], trigger: KafkaTrigger | None) -> Modelled:
    """Run the model; scaled by KEDA with a trigger, by Rota without, which asks its first pods how long they took to start."""
    runs = [run(trace, arrivals, number, trigger) for number in range(MODEL_RUNS)]
    found = [score for score, _ in runs]
    return Modelled(
        fmean(each.rebalances for each in found),
        fmean(each.late_s for each in found),
        fmean(each.replica_hours * 60 for each in found),
        mean_of([[Point(each.at_s, each.replicas, each.backlog) for each in points] for _, points in runs]),
    )


def fewer_than(bound: float) -> page.Goal:
    """The goal that a figure is below a bound; none is as few as can be."""
    return page.Goal(f"< {bound:,g}, or 0", lambda figure: figure < bound or not figure)


def score_lines(trace: Trace, found: Mapping[str, Raced]) -> Iterator[page.Line]:
    """Compare the costs."""
    rota, keda = found[ROTA].score, found[KEDA].score
    figures = (
        ("rebalances", rota.rebalances, keda.rebalances, "{:,.0f}", fewer_than),
        ("seconds without an owner, all partitions", rota.unowned_s, keda.unowned_s, "{:,.1f} s", fewer_than),
        ("records processed again", rota.repeated, keda.repeated, "{:,.0f}", fewer_than),
        (f"oldest record above {LAG_SLA_S} s", rota.late_s, keda.late_s, "{:,.1f} s", page.at_most),
        ("replica-minutes", rota.pod_minutes, keda.pod_minutes, "{:,.1f}", page.at_most),
    )
    for what, ours, theirs, form, goal_of in figures:
        ratio = ours / theirs if theirs else None
        goal = page.judged(goal_of(round(theirs, 1)), round(ours, 1))
        yield page.Line(
            f"{trace.name}: {what}", form.format(ours), f"KEDA {form.format(theirs)}", ratio, goal
        )


def model_lines(
    trace: Trace, arrivals: Sequence[Sequence[float]], found: Mapping[str, Raced]
) -> Iterator[page.Line]:
    """Print the model's figures for both, and how far the real curves are from its own."""
    models = {ROTA: modelled(trace, arrivals, None), KEDA: modelled(trace, arrivals, KafkaTrigger())}
    texts = {
        system: f"{each.rebalances:.1f} rebalances, late {each.late_s:.0f} s, {each.pod_minutes:.0f} replica-minutes"
        for system, each in models.items()
    }
    yield page.Line(f"{trace.name}, model", texts[ROTA], f"KEDA {texts[KEDA]}")
    for name in LEAST:
        texts = {
            system: beside_model(found[system].curve, each.curve, name) for system, each in models.items()
        }
        yield page.Line(f"{trace.name}: {name}, mean", texts[ROTA], f"KEDA {texts[KEDA]}")


def beside_model(real: Curve, model: Curve, name: str) -> str:
    """Return the means of two curves, and the area between them as a share of that below the model's."""
    means = [fmean(getattr(each, name) for each in curve) for curve in (real, model)]
    return f"{means[0]:.1f}, model {means[1]:.1f}, area {difference(real, model, name):.2f}"


def chart_of(trace: Trace, found: Mapping[str, Raced]) -> str:
    """Return the chart of a trace: lag and pods over time, of both."""

    def in_minutes(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(at_s / MINUTE, value) for at_s, value in points]

    lag = [time_chart.Curve(system, in_minutes(each.lag)) for system, each in found.items()]
    pods = [
        time_chart.Curve(system, in_minutes([(sample.at_s, sample.pods) for sample in each.samples]))
        for system, each in found.items()
    ]
    panels = [
        time_chart.Panel("records that are sent and not processed", lag),
        time_chart.Panel("pods", pods, is_stepped=True),
    ]
    return time_chart.drawn(f"{trace.name}: {trace.description}", "minutes", panels)


# -------------------------------------------------------------------------------------------------- main


@contextmanager
def environment() -> Iterator[Environment]:
    """Start everything; the HorizontalPodAutoscaler has its default interval."""
    keda_support.prepare()
    with ExitStack() as stack:
        folder = stack.enter_context(workdir("cluster", abandoned=remove_leftovers))
        cluster = stack.enter_context(running(folder, rota_images.nodes(), autoscaler_sync_s=SYNC_S))
        serve_consumer_groups(cluster)
        deploy_rota(cluster)
        kafka = stack.enter_context(kafka_support.running(network=cluster, settings=BROKER))
        engine = KafkaEngine(kafka)
        stack.callback(engine.close)
        keda = stack.enter_context(keda_support.running(cluster))
        yield Environment(cluster, keda, kafka, engine)


def race(around: Environment, trace: Trace) -> tuple[list[page.Line], str]:
    """Race both systems on a trace; returns the lines of the table, and the chart."""
    say(f"{trace.name}: {trace.description}")
    arrivals = arrivals_of(trace, SEED, shift_max_s=0)
    servers = around.kafka.bootstrap_for_pods
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                deployed(around.cluster, system, setting_of(system, trace, around.engine, servers))
            )
            for system in (ROTA, KEDA)
        ]
        found = raced(around, trace, schedule_of(arrivals), sides)
        for side in sides:
            say(f"  {side.system}: {found[side.system].score}")
            for change in side.changes():
                say(f"    {change}")
    return [*score_lines(trace, found), *model_lines(trace, arrivals, found)], chart_of(trace, found)


def main() -> None:
    """Race both systems on each trace, and print the table."""
    traces = {each.name: each for each in RACED}
    result = page.Page(
        "keda",
        f"two Deployments in one cluster side by side, {PARTITIONS} partitions each: a ConsumerGroup that Rota scales, and plain "
        "confluent-kafka consumers that KEDA scales (operator, metrics adapter and HorizontalPodAutoscaler), both with their defaults; "
        f"the same records at the same times, {WORK_MS} ms of work on each. Traces: "
        + "; ".join(f"{each.name}, {each.description}" for each in RACED)
        + f". Model: means of {MODEL_RUNS} runs; area: that between both curves as a share of the model's",
        quick=f"the first {QUICK_S // MINUTE} minutes of each trace",
        parts=tuple(traces),
    )
    duration_s = QUICK_S if result.quick else DURATION_S
    total_s = STARTS_S + len(result.parts) * (AROUND_S + duration_s)
    say(f"{len(result.parts)} traces of {duration_s // MINUTE} minutes: about {total_s // MINUTE} minutes")
    lines: list[page.Line] = []
    charts: dict[str, str] = {}
    with environment() as around:
        for name in result.parts:
            found, chart = race(around, replace(traces[name], duration_s=duration_s))
            lines += found
            charts[f"bench-keda-{name}"] = chart
    result.show(lines, charts=charts)


if __name__ == "__main__":
    main()
