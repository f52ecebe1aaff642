"""
Replay two traces of load on `rota up` with real processes, beside the model of `tests.simulation.autoscaling` with the same parameters.

The claim: lag and replicas over time differ from the model's by at most 20 %. Both get the same records at the same times: a group of at
most six replicas on 12 partitions, 182 ms of work for each record, and the autoscaler's times shortened, so that a replay takes 4 minutes.
Both curves are means of several runs, which differ by the phases of polls, looks and commits; those of the replay run side by side, and
begin at different times between two polls. The model's pods start as quickly as the processes of the replay did; how quickly is unknown to both
autoscalers before the first growth.

A curve's difference is the area between both curves, as a share of the area below the model's. Beside it stands by how much the model's own
runs differ from their mean.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

import yaml

import rota
from benchmarks.peers import page
from rota_operator.autoscaling.history import History
from rota_operator.spec.workload import Autoscaling
from tests.cli.groups import fill
from tests.simulation.autoscaling.figures import ON_LAPTOP, RECORDS_PER_S, SIDECAR_START_S, Range
from tests.simulation.autoscaling.group import ModelGroup
from tests.simulation.autoscaling.scalers import RotaScaler
from tests.simulation.autoscaling.traces import PARTITIONS, STEP_S, Trace, arrivals_of
from tests.support.processes import Process
from tests.support.web import get
from tests.support.workdir import workdir

APP = Path(__file__).parents[1] / "tests" / "operator" / "local" / "slow_app.py"
GROUP = "orders"
SEED, MODEL_RUNS = 1, 10
# Polls and drains happen at any time within a step of the trace.
MODEL_STEP_S = 1
# Side by side: their processes sleep most of the time, but those that start at once wait for each other.
REPLAYS = 3
INITIAL = 2
DURATION_S, QUICK_S = 240, 100
WITHIN_S = 120
SAMPLE_S = 0.5
# Figures that are compared, and the least mean of the model's curve: a lag of a few records is that of records in flight.
LEAST: Mapping[str, float] = {"replicas": 1.0, "lag": 2.0}
START_UNKNOWN_S = Range(0.5, 1.5)
GOAL = page.at_most(0.2)
# The fields as a manifest has them.
AUTOSCALING: Mapping[str, Any] = {
    "enabled": True, "maxReplicaCount": 6, "pollingInterval": 5, "minChangeIntervalSeconds": 30, "lagSecondsTarget": 20,
    "catchUpSeconds": 60,
}  # fmt: skip
SPEC = Autoscaling.model_validate(AUTOSCALING)


def _step(at_s: float, _drawn: float) -> float:
    return 22 if 30 <= at_s < 120 else 6


def _burst(at_s: float, _drawn: float) -> float:
    return 24 if at_s % 120 >= 30 and at_s % 120 < 50 else 6


REPLAYED = (
    Trace("step", DURATION_S, _step, "6/s, for 90 s 22/s, and 6/s again"),
    Trace("burst", DURATION_S, _burst, "6/s, and every 2 minutes 24/s for 20 s"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """State of the group at one time since the begin of the trace."""

    at_s: float
    replicas: float
    # Records that were sent, and are not processed.
    lag: float


Curve = Sequence[Point]


# ------------------------------------------------------------------------------------------------- model


def mean_of(runs: Sequence[Curve]) -> Curve:
    """Return the mean of several runs, at the end of each step."""
    return [
        Point(points[0].at_s, fmean(each.replicas for each in points), fmean(each.lag for each in points))
        for points in zip(*runs, strict=True)
    ]


def _model_run(trace: Trace, arrivals: Sequence[Sequence[float]], number: int) -> Curve:
    chance = random.Random(f"{trace.name} {number} replay")
    group = ModelGroup(trace, INITIAL, chance, setting=ON_LAPTOP, step_s=MODEL_STEP_S)
    scaler, points = RotaScaler(group, SPEC, chance, History()), []
    steps = STEP_S // MODEL_STEP_S
    for records in arrivals:
        for _ in range(steps):
            scaler.act()
            group.step([each / steps for each in records])
        points.append(Point(group.now_s, group.replicas, group.backlog() + group.in_work()))
    return points


# ------------------------------------------------------------------------------------------------ replay


def manifests(notes: Path) -> list[dict[str, Any]]:
    """Return the group and its workload."""
    labels = {"app": GROUP}
    app = {
        "name": "app",
        "image": "app:1",
        "command": ["python", str(APP), str(notes), GROUP, str(1 / RECORDS_PER_S)],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    group = {
        "bootstrapServers": ["rota://rota-coordinator.rota:7070"],
        "topics": [GROUP],
        "scaleTargetRef": {"name": GROUP},
        "replicas": INITIAL,
        "delivery": {"concurrency": 1},
        "autoscaling": dict(AUTOSCALING),
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [app]}}
    workload = {"replicas": INITIAL, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": GROUP}
    return [
        {"apiVersion": "rota.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": metadata, "spec": group},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": workload},
    ]


class Replay:
    """A group under `rota up`, and what its page says."""

    def __init__(self, folder: Path, process: Process) -> None:
        self._home, self.notes, self.process = folder / ".rota", folder / "notes", process

    @property
    def address(self) -> str:
        return (self._home / "address").read_text().strip()

    def state(self) -> tuple[int, int, bool]:
        """Return the desired number of replicas, the number of members, and whether the group is stable."""
        address = (self._home / "page").read_text().strip().removeprefix("http://").rstrip("/")
        state = json.loads(get(address, "/api/state").page)
        group = next(each for each in state["groups"] if each["name"] == f"default/{GROUP}")
        workload = next(each for each in state["workloads"] if each["name"] == GROUP)
        members = sum(each["member_id"] is not None for each in group["members"])
        return int(workload["wanted"]), members, group["state"] == "Stable"

    def done(self) -> int:
        """Return the number of records that were processed."""
        return self.notes.read_bytes().count(b"\n") if self.notes.exists() else 0


@contextmanager
def running(folder: Path) -> Iterator[Replay]:
    """The group under `rota up`, stable with the initial replicas."""
    (folder / "group.yaml").write_text(yaml.safe_dump_all(manifests(folder / "notes")))
    home = folder / ".rota"
    command = [sys.executable, "-m", "rota_operator", "local", f"--home={home}", f"--file={folder}"]
    flags = ["--listen=127.0.0.1:0", "--page=127.0.0.1:0"]
    process = Process.start("local", [*command, *flags], log=folder / "local.log")
    try:
        process.wait_until((home / "page").exists, within_s=WITHIN_S)
        found = Replay(folder, process)
        fill(found.address, GROUP, *[0] * PARTITIONS)
        process.wait_until(lambda: found.state() == (INITIAL, INITIAL, True), within_s=WITHIN_S)
        yield found
    finally:
        process.stop(within_s=WITHIN_S)


def schedule_of(arrivals: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
    """Return the times and partitions of the records: those of a step at equal distances, fractions carried over."""
    found, left = [], [0.0] * PARTITIONS
    for number, records in enumerate(arrivals):
        for partition, count in enumerate(records):
            left[partition] += count
            whole = int(left[partition])
            left[partition] -= whole
            found += [
                (STEP_S * (number + (each + (partition + 0.5) / PARTITIONS) / whole), partition)
                for each in range(whole)
            ]
    return sorted(found)


class Sender:
    """Sends records at their times, in a thread, from the begin of its block on."""

    def __init__(self, servers: str, schedule: Sequence[tuple[float, int]]) -> None:
        self.sent = 0
        self._began_s = 0.0
        self._servers, self._schedule = servers, schedule
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def elapsed_s(self) -> float:
        """Return the time since the begin."""
        return time.monotonic() - self._began_s

    def _run(self) -> None:
        with rota.Producer(self._servers) as producer:
            for at_s, partition in self._schedule:
                if self._stopping.wait(max(0.0, self._began_s + at_s - time.monotonic())):
                    return
                producer.send(GROUP, b"%d" % self.sent, partition=partition)
                self.sent += 1


class Replayed(NamedTuple):
    """The curve at the end of each step, and the time that each added replica took until all of its growth had joined."""

    curve: Curve
    starts_s: Sequence[float]


def replayed(arrivals: Sequence[Sequence[float]], begins_s: float) -> Replayed:
    """Replay a trace, which begins so long after the group has become stable."""
    schedule = schedule_of(arrivals)
    with workdir("replay") as folder, running(folder) as replay:
        time.sleep(begins_s)
        with Sender(replay.address, schedule) as sender:
            return _observed(replay, sender, len(arrivals))


def replays_of(arrivals: Sequence[Sequence[float]]) -> Sequence[Replayed]:
    """Replay a trace several times side by side."""
    begins_s = [SPEC.polling_interval * number / REPLAYS for number in range(REPLAYS)]
    with ThreadPoolExecutor(REPLAYS) as pool:
        return [*pool.map(partial(replayed, arrivals), begins_s)]


def _observed(replay: Replay, sender: Sender, steps: int) -> Replayed:
    points: list[Point] = []
    starts: list[float] = []
    wanted, since_s, added = INITIAL, None, 0
    for step in range(1, steps + 1):
        while (now_s := sender.elapsed_s()) < step * STEP_S:
            replay.process.check_running()
            time.sleep(min(SAMPLE_S, step * STEP_S - now_s))
            before, (wanted, members, _) = wanted, replay.state()
            if wanted != before:
                since_s, added = (now_s, wanted - before) if wanted > before else (None, 0)
            if since_s is not None and members >= wanted:
                starts += [sender.elapsed_s() - since_s] * added
                since_s = None
        points.append(Point(step * STEP_S, wanted, sender.sent - replay.done()))
    return Replayed(points, starts)


# -------------------------------------------------------------------------------------------- comparison


def difference(real: Curve, model: Curve, name: str) -> float:
    """Return the area between two curves as a share of the area below the second."""
    ours, theirs = _values(real, name), _values(model, name)
    area = sum(abs(one - other) for one, other in zip(ours, theirs, strict=True))
    return area / max(sum(theirs), LEAST[name] * len(theirs))


def lines_of(trace: Trace) -> Iterator[page.Line]:
    """Replay a trace and compare both curves."""
    arrivals = arrivals_of(trace, SEED, shift_max_s=0)
    found = replays_of(arrivals)
    real, starts = mean_of([each.curve for each in found]), [at_s for each in found for at_s in each.starts_s]
    pod_start_s = START_UNKNOWN_S
    if starts:
        mean_s = max(0.0, fmean(starts) - fmean(SIDECAR_START_S))
        pod_start_s = Range(mean_s, mean_s)
    started = replace(trace, pod_start_s=pod_start_s)
    runs = [_model_run(started, arrivals, number) for number in range(MODEL_RUNS)]
    model = mean_of(runs)
    for name in LEAST:
        yield page.Line(f"{trace.name}: {name} over time", _text(real, name), f"model {_text(model, name)}")
        area = difference(real, model, name)
        own = fmean(difference(each, model, name) for each in runs)
        means = [fmean(_values(each, name)) for each in (real, model)]
        yield page.Line(
            f"{trace.name}: {name}, mean", f"{means[0]:.1f}", f"model {means[1]:.1f}, its own runs differ by {own:.2f}", area,
            page.judged(GOAL, area),
        )  # fmt: skip
    changes = fmean(
        sum(before.replicas != after.replicas for before, after in pairwise(each.curve)) for each in found
    )
    joined = f"added replicas had joined after {fmean(starts):.1f} s" if starts else "no replica was added"
    yield page.Line(f"{trace.name}: changes", f"{changes:.1f}; {joined}")


def _values(curve: Curve, name: str) -> Sequence[float]:
    return [getattr(each, name) for each in curve]


def _text(curve: Curve, name: str) -> str:
    """Return a curve as numbers, one for each step."""
    return " ".join(f"{each:.0f}" for each in _values(curve, name))


def main() -> None:
    """Replay the traces, and print the table."""
    traces = {each.name: each for each in REPLAYED}
    result = page.Page(
        "replay",
        f"traces of load on `rota up` with real processes (mean of {REPLAYS} replays side by side), beside the model (mean of {MODEL_RUNS} runs): replicas and records that are sent "
        f"and not processed, at intervals of {STEP_S} s; ratio: the area between both curves as a share of the model's",
        quick=f"the first {QUICK_S} s of each trace",
        parts=tuple(traces),
    )
    lines: list[page.Line] = []
    for name in result.parts:
        trace = traces[name]
        lines += lines_of(replace(trace, duration_s=QUICK_S) if result.quick else trace)
    result.show(lines)


if __name__ == "__main__":
    main()
