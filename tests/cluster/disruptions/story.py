"""
A workload whose pods are disrupted while records come, and all that was seen of it: the input of the rules in `delivery.rounds.history`.

A story is a generator that yields what it waits for, so that several go on side by side in one thread: `run_all` runs them. Kubectl
has one process, so nothing here waits inside a command.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from tests.cluster.disruptions.lives import Life, Lives
from tests.cluster.disruptions.members import Members
from tests.sidecar.delivery.rounds.engine import Engine
from tests.sidecar.delivery.rounds.gaps import gaps_of
from tests.sidecar.delivery.rounds.history import History, Hit, done_by, values_of
from tests.sidecar.delivery.rounds.source import Source, Watch, going_on
from tests.sidecar.membership.rolling import history as membership
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.processes import steady_ms, wait_for
from tests.support.sidecar import Event

PARTITIONS = 12
EVERYTHING = frozenset(range(PARTITIONS))
# Uncommitted records: 10 s of the producer.
BACKLOG_MAX = 2_000
# Between two looks at the API server.
LOOK_EACH_MS = 400


class Wait(NamedTuple):
    """Condition that a story waits for."""

    what: str
    holds: Callable[[], bool]


Acts = Iterator[Wait]


class Setting(NamedTuple):
    """A workload in a namespace of its own, and its group, which has its name."""

    namespace: str
    kind: str
    engine: Engine
    # Addresses of the engine for pods.
    servers: str
    # Of the group's members, as of the limits: how long a partition may be without an owner after an end in good order.
    clean_ms: int | None = None
    # The same after any other end.
    crash_ms: int | None = None
    is_static: bool = False
    replicas: int = 3
    # Of the application's work on a record, and of the sidecar's dispatch.
    work_ms: int = 20
    ordering: str = "partition"
    # False: in an interval, and a crash repeats what was done within it.
    commits_at_once: bool = False
    name: str = "orders"
    # False: the pods have no sidecar.
    is_adopted: bool = True

    @property
    def topic(self) -> str:
        return f"{self.namespace}.records"

    @property
    def group_id(self) -> str:
        return f"{self.namespace}.{self.name}"


class Story:
    """The pods of one workload, what was done to them, and what their applications did."""

    def __init__(self, cluster: Cluster, setting: Setting, lives: Lives, seed: int) -> None:
        self.cluster = cluster
        self.setting = setting
        self.lives = lives
        self.chance = random.Random(f"{seed} {setting.namespace}")
        self.source = Source(setting.engine, setting.topic, PARTITIONS)
        self.watch = Watch(setting.engine, setting.group_id, setting.topic)
        self.source.is_held = self._is_far_behind
        self.hits: list[Hit] = []
        # Names of hits in good order: after them no record is repeated, and partitions are soon owned again.
        self.clean: set[str] = set()
        # Generation of the group before each hit, and after the last one.
        self.generations: list[int] = []
        self.members = Members()

    # The API server

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl(*arguments, f"--namespace={self.setting.namespace}", input=input)

    def pods(self) -> Mapping[str, Any]:
        """Pods by name, those included that are being deleted."""
        found = self.cluster.get("pods", namespace=self.setting.namespace)["items"]
        return {each["metadata"]["name"]: each for each in found}

    def workload(self) -> Any:  # noqa: ANN401  as it is stored
        """The workload as it is stored."""
        kind = self.setting.kind.lower()
        return self.cluster.get(f"{kind}/{self.setting.name}", namespace=self.setting.namespace)

    def looks(self, what: str, holds: Callable[[], bool]) -> Wait:
        """Return a wait that asks the API server now and then."""
        last_ms = 0

        def asked() -> bool:
            nonlocal last_ms
            if steady_ms() - last_ms < LOOK_EACH_MS:
                return False
            last_ms = steady_ms()
            return holds()

        return Wait(what, asked)

    # Waiting

    def ready(self, *, without: Sequence[str] = ()) -> Wait:
        """Wait until all pods are ready, and none of these UIDs is left."""

        def holds() -> bool:
            pods = self.pods().values()
            return (
                len(pods) == self.setting.replicas
                and all(is_ready(each) for each in pods)
                and not {each["metadata"]["uid"] for each in pods} & {*without}
            )

        return self.looks(f"{self.setting.namespace}: all pods ready", holds)

    def owned(self) -> Wait:
        """Wait until each partition has one application."""
        return Wait(f"{self.setting.namespace}: an owner for each partition", self._is_owned)

    def _is_owned(self) -> bool:
        self.source.steadily.check()
        self.watch.steadily.check()
        shares = [life.partitions for life in self.lives.running()]
        return frozenset().union(*shares) == EVERYTHING and sum(map(len, shares)) == PARTITIONS

    def settled(self) -> Wait:
        """Wait until the partitions are shared by all pods, in equal numbers."""

        def holds() -> bool:
            shares = [len(life.partitions) for life in self.lives.running() if life.partitions]
            return (
                self._is_owned() and len(shares) == self.setting.replicas and max(shares) - min(shares) <= 1
            )

        return Wait(f"{self.setting.namespace}: equal shares", holds)

    def identified(self) -> Wait:
        """Wait until it is known which member each pod is: a dynamic one of a Deployment is succeeded by other pods in its generation."""

        def holds() -> bool:
            self.note_members()
            return self.members.knows(self.pods().keys())

        if self.setting.is_static or not self.setting.is_adopted or self.setting.kind != "Deployment":
            return Wait("nothing", lambda: True)
        return self.looks(f"{self.setting.namespace}: the members in the group's status", holds)

    def caught_up(self) -> Wait:
        """Wait until all that has been produced by now is committed."""
        ends = self.source.ends

        def holds() -> bool:
            last = self.watch.last
            return all(last.get(partition, 0) >= end for partition, end in ends.items())

        return Wait(f"{self.setting.namespace}: commits of {dict(ends)}", holds)

    def _is_far_behind(self) -> bool:
        """Return whether more records wait than a busy machine works off before a wait gives up."""
        return len(self.source.acknowledged) - sum(self.watch.last.values()) > BACKLOG_MAX

    # What is done to it

    def hit(self, what: str, had: frozenset[int] = frozenset(), *, is_clean: bool = False) -> None:
        """Note a disruption; of `had`, what is not committed now may be repeated."""
        self.note_members()
        self.generations.append(self.generation())
        if is_clean:
            self.clean.add(what)
        committed = self.watch.look() if had else {}
        self.hits.append(Hit(what, steady_ms(), had, committed))

    def generation(self) -> int:
        """Highest generation that an application has seen."""
        return max(
            (event["generation"] for life in self.lives.read() for event in life.events if "generation" in event),
            default=0,
        )  # fmt: skip

    def draw(self) -> Life:
        """Draw an application that runs and has partitions."""
        return self.chance.choice([life for life in self.lives.running() if life.partitions])

    def note_members(self) -> None:
        """Remember which pod stands for which member of a Deployment: others succeed it in the same generation."""
        if self.setting.kind == "StatefulSet":
            return
        if not self.setting.is_static:
            self._note_member_ids()
            return
        try:
            found = self.cluster.get(
                f"configmap/rota-{self.setting.name}-instances", namespace=self.setting.namespace
            )
        except KubectlFailed:
            return
        self.members.note(
            self.generation(), {str(text).partition(" ")[0]: name for name, text in found["data"].items()}
        )

    def _note_member_ids(self) -> None:
        """Remember the member ids of pods, by the status of their group; a plain consumer's group has none."""
        try:
            found = self.cluster.get(f"consumergroup/{self.setting.name}", namespace=self.setting.namespace)
        except KubectlFailed:
            return
        placements = (found.get("status") or {}).get("placements") or []
        self.members.note(
            self.generation(),
            {each["podName"]: each["memberId"] for each in placements if each.get("memberId")},
        )

    # The outcome

    def history(self) -> History:
        """All that happened so far, for the rules about records."""
        topic, lives = self.setting.topic, self.lives.read()
        names = {hit.what for hit in self.hits}
        both = ((self.clean, self.setting.clean_ms), (names - self.clean, self.setting.crash_ms))
        limits = {name: limit_ms for found, limit_ms in both if limit_ms is not None for name in found}
        return History(
            acknowledged=dict(self.source.acknowledged),
            done=[done for life in lives for done in done_by(life.name, topic, life.events)],
            values=[value for life in lives for value in values_of(topic, life.events)],
            hits=self.hits,
            looks=self.watch.looks,
            gaps=gaps_of(((life.name, life.notices(EVERYTHING)) for life in lives), self.hits, limits),
        )

    def rebalances(self, what: str) -> int:
        """Number of generations that followed disruptions of this name."""
        after = [*self.generations[1:], self.generation()]
        steps = zip(self.hits, self.generations, after, strict=True)
        return sum(last - first for hit, first, last in steps if hit.what == what)

    def repeats(self) -> int:
        """Number of records that were processed again."""
        return self.history().repeats_of_all

    def owners(self) -> membership.History:
        """The owners of each generation, for the rules about membership."""
        lives = [
            member
            for life in self.lives.read()
            for member in self.members.lives(life.name, life.pod, self._with_losses(life))
        ]
        limits = membership.Limits(0, 0, 0)
        return membership.History((), limits, lives, (), (), ())

    def _with_losses(self, life: Life) -> Sequence[Event]:
        """Return the events of a life; without its sidecar it has lost everything, which none of them says."""
        everything = {self.setting.topic: [*EVERYTHING]}
        detached_ms = [each["monotonic_ms"] for each in life.events if each["event"] == "detached"]
        losses = [
            {"event": "lost", "partitions": everything, "monotonic_ms": at_ms}
            for at_ms in (*life.detached_ms, *detached_ms)
        ]
        return sorted([*life.events, *losses], key=lambda event: int(event["monotonic_ms"]))

    def faults(self) -> Sequence[str]:
        """Return each broken rule in a sentence."""
        self.note_members()
        return [
            *self.history().faults(),
            *(f"assigned to two: {each}" for each in membership.assigned_to_two(self.owners())),
        ]

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """While open, records are produced, and committed offsets are watched."""
        with ExitStack() as stack:
            stack.enter_context(going_on(self.watch.steadily))
            stack.enter_context(going_on(self.source.steadily))
            yield


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is ready and not being deleted."""
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


def run_all(*stories: Acts) -> None:
    """Run stories side by side to their ends. Raises ProcessFailed with what they wait for when none of them gets on."""
    going: dict[Acts, Wait] = {}

    def advance(story: Acts) -> None:
        wait = next(story, None)
        if wait is None:
            going.pop(story, None)
        else:
            going[story] = wait

    def does_any_get_on() -> bool:
        held = [story for story, wait in going.items() if wait.holds()]
        for story in held:
            advance(story)
        return bool(held)

    for story in stories:
        advance(story)
    while going:
        what = "; ".join(each.what for each in going.values())
        wait_for(what, does_any_get_on, within_s=WITHIN_S, poll_s=0.1)


def run_in_turn(*stories: Acts) -> None:
    """Run stories one after the other. Raises ProcessFailed with what one waits for when it does not get on."""
    for story in stories:
        run_all(story)


def explained(story: Story) -> str:
    """Describe pods, owners and broken rules, for an error."""
    states = {name: each["status"].get("phase") for name, each in story.pods().items()}
    shares = {life.name: sorted(life.partitions) for life in story.lives.running()}
    about = {"pods": states, "shares": shares, "committed": story.watch.last, "hits": story.hits[-2:]}
    return "\n".join([f"{story.setting.namespace}: {about}", *story.faults()])
