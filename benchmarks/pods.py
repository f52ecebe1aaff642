"""
Measure how long partitions have no owner while pods come and go, beside a plain confluent-kafka consumer in the same cluster.

The claim: in disruptions in good order a partition is unowned for at most half as long as with a plain consumer on Rota's
coordinator, and no longer on Kafka's; no record is repeated; and a rollout of six pods causes no more rebalances, with static
members at most one. Nodes, pods and brokers are real. All have the same settings: cooperative-sticky, heartbeats each 3 s, 20 ms of
work on each of 200 records a second.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from benchmarks.peers import page
from tests.cluster.disruptions import acts
from tests.cluster.disruptions.story import Setting, Story, run_all
from tests.cluster.disruptions.workloads import (
    COMMIT_S,
    HEARTBEAT_S,
    SESSION_S,
    Engines,
    close_story,
    open_story,
    plain_workload,
    serving_both,
)
from tests.support import rota_images
from tests.support.cluster import Cluster, images
from tests.support.cluster.cluster import remove_leftovers, running
from tests.support.cluster.fixtures import deploy_rota, serve_consumer_groups
from tests.support.workdir import workdir

REPLICAS = 6
ROLLING, DELETE = acts.ROLLING, acts.DELETE
DELETIONS = 3
PLAIN = "plain"
SHARES = {"rota": 0.5, "kafka": 1.0}
NAMES = tuple(f"{engine}, {kind}" for engine in SHARES for kind in ("dynamic", "static"))


class Cost(NamedTuple):
    """Cost of a disruption: times without an owner, repeated records, rebalances."""

    unowned_s: Sequence[float]
    repeats: int
    rebalances: int

    @property
    def p50_s(self) -> float:
        return median(self.unowned_s) if self.unowned_s else 0.0

    @property
    def max_s(self) -> float:
        return max(self.unowned_s, default=0.0)

    @property
    def text(self) -> str:
        return f"{self.p50_s:.2f} s, max {self.max_s:.2f} s, {self.rebalances} rebalances, {self.repeats} repeats"


def say(what: str) -> None:
    """Show the progress: each workload takes a minute or two."""
    print(f"{time.strftime('%X')}  {what}", flush=True)


def settings(engines: Engines) -> Mapping[str, Setting]:
    """The workloads, by name."""
    found = {
        f"{engine}, {'static' if is_static else 'dynamic'}": Setting(
            namespace=f"pods-{engine}-{'static' if is_static else 'dynamic'}",
            kind="Deployment",
            engine=engines.rota if engine == "rota" else engines.kafka,
            servers=engines.rota_servers if engine == "rota" else engines.kafka_servers,
            is_static=is_static,
            replicas=REPLICAS,
        )
        for engine in SHARES
        for is_static in (False, True)
    }
    found[PLAIN] = Setting(
        "pods-plain", "Deployment", engines.kafka, engines.kafka_servers, replicas=REPLICAS, is_adopted=False
    )
    return found


def plain_story(cluster: Cluster, setting: Setting) -> Story:
    """The same Deployment with a consumer of confluent-kafka."""
    times = {
        "session.timeout.ms": SESSION_S * 1000,
        "heartbeat.interval.ms": HEARTBEAT_S * 1000,
        "auto.commit.interval.ms": COMMIT_S * 1000,
    }
    manifest = plain_workload(setting, images.part("cli").name, times)
    return open_story(cluster, setting, 1, manifest)


def measured(cluster: Cluster, name: str, setting: Setting) -> Mapping[str, Cost]:
    """Run one workload, roll it out, and delete pods; return the costs by what was done."""
    say(name)
    story = plain_story(cluster, setting) if name == PLAIN else open_story(cluster, setting, 1)
    with ExitStack() as stack:
        stack.callback(close_story, story)
        # Kafka knows no offsets of a group before it has a coordinator.
        run_all(acts.begin(story))
        stack.enter_context(story.going_on())
        run_all(acts.rolling_restart(story))
        for _ in range(DELETIONS):
            run_all(acts.delete_pod(story))
        story.source.steadily.end()
        run_all(iter([story.caught_up()]))
        if name != PLAIN:
            faults = story.faults()
            assert not faults, "\n".join(faults)
        story.kubectl("delete", "deployment", setting.name, "--wait=false")
    costs = costs_of(story)
    for what, cost in costs.items():
        say(f"  {what}: {cost.text}")
    return costs


def costs_of(story: Story) -> Mapping[str, Cost]:
    """Costs by what was done; several of a kind are taken together."""
    history = story.history()
    generations = [*story.generations, story.generation()]
    return {
        what: Cost(
            [gap.unowned_ms / 1000 for gap in history.gaps if gap.what == what],
            history.repeats(what),
            sum(
                generations[number + 1] - generations[number]
                for number, hit in enumerate(history.hits)
                if hit.what == what
            ),
        )
        for what in (ROLLING, DELETE)
    }


def lines_of(costs: Mapping[str, Mapping[str, Cost]]) -> list[page.Line]:
    """Compare each workload with the plain one."""
    beside = costs[PLAIN]
    found = []
    for name, rows in costs.items():
        if name == PLAIN:
            continue
        share = SHARES[name.partition(",")[0]]
        for what, cost in rows.items():
            ratio = cost.p50_s / beside[what].p50_s if beside[what].p50_s else None
            goal = "" if ratio is None else page.judged(page.at_most(share), ratio)
            found.append(page.Line(f"{what}, {name}", cost.text, beside[what].text, ratio, goal))
        limit = 1 if name.endswith("static") else beside[ROLLING].rebalances
        found.append(
            page.Line(
                f"rebalances in a rollout of {REPLICAS}, {name}",
                str(rows[ROLLING].rebalances),
                str(beside[ROLLING].rebalances),
                goal=page.judged(page.at_most(limit), rows[ROLLING].rebalances),
            )
        )
    return found


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page(
        "pods",
        f"{REPLICAS} pods, 12 partitions; time without an owner (p50, max) when pods are replaced, beside confluent-kafka",
        parts=NAMES,
    )
    with (
        workdir("pods-benchmark") as folder,
        workdir("cluster", abandoned=remove_leftovers) as cluster_folder,
        running(cluster_folder, rota_images.nodes()) as cluster,
        serving_both(cluster, folder) as engines,
    ):
        serve_consumer_groups(cluster)
        deploy_rota(cluster)
        wanted = (*result.parts, PLAIN)
        result.show(
            lines_of(
                {
                    name: measured(cluster, name, each)
                    for name, each in settings(engines).items()
                    if name in wanted
                }
            )
        )


if __name__ == "__main__":
    main()
