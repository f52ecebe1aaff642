"""Acts on the pods of a story: each notes itself, disrupts, and waits until the partitions are shared again."""

import json
import signal
from collections.abc import Sequence
from functools import partial

import pytest

from tests.cluster.disruptions.lives import ASSIGNED, Life
from tests.cluster.disruptions.story import EVERYTHING, Acts, Story, Wait
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.processes import steady_ms

APP, SIDECAR = "app", "rota-sidecar"
ROLLING, DELETE, EVICT, DRAIN = "rolling restart", "kubectl delete pod", "eviction", "kubectl drain"
KILL_SIDECAR, KILL_APP, KILL_BOTH = "kill -9 of a sidecar", "kill -9 of an application", "kill -9 of both"
POWER_CUT, LINK_CUT = "a node's power cut", "a node's link cut and mended"


# A successor that starts sooner was created before the operator gave it up, and starts before the old pod does.
STARTS_SOON_MS = 4_000


def begin(story: Story) -> Acts:
    """Wait until the group runs."""
    yield story.ready()
    yield story.settled()
    yield story.identified()


def again(story: Story, gone: Sequence[str]) -> Acts:
    """Wait until pods without these UIDs share the partitions, and commit."""
    yield story.ready(without=gone)
    yield story.settled()
    yield story.identified()
    yield story.caught_up()


def rolling_restart(story: Story) -> Acts:
    """Replace all pods by a rollout."""
    before = [each["metadata"]["uid"] for each in story.pods().values()]
    story.hit(ROLLING, is_clean=True)
    story.kubectl("rollout", "restart", f"{story.setting.kind.lower()}/{story.setting.name}")
    yield from again(story, before)


def delete_pod(story: Story) -> Acts:
    """Delete a pod that has partitions."""
    life = story.draw()
    uid = story.pods()[life.pod]["metadata"]["uid"]
    story.hit(DELETE, is_clean=True)
    story.kubectl("delete", "pod", life.pod, "--wait=false")
    yield from again(story, [uid])
    setting = story.setting
    # In a soak the operator may be away, and then no pod waits.
    if setting.is_adopted and setting.kind == "Deployment" and setting.crash_ms is None:
        check_that_it_waited(story, life, story.hits[-1].at_ms)


def check_that_it_waited(story: Story, life: Life, deleted_ms: int) -> None:
    """Check that a member had its partitions until its successor's application ran, unless that took long."""
    lives = story.lives.read()
    started_ms = min(each.started_ms for each in lives if each.started_ms > deleted_ms)
    released_ms = min(
        at_ms for at_ms, what, _ in life.notices(EVERYTHING) if at_ms > deleted_ms and what != ASSIGNED
    )
    if started_ms < deleted_ms + STARTS_SOON_MS:
        assert released_ms > started_ms, f"{life.pod} has not waited for its successor"


def spread(story: Story, node: str) -> Acts:
    """Delete pods until one with partitions runs on a node, and one elsewhere: a StatefulSet's pods are not replaced while a node is lost."""
    while not is_spread(story, node):
        yield from delete_pod(story)


def is_spread(story: Story, node: str) -> bool:
    """Return whether there are pods with partitions on a node, and others elsewhere."""
    are_there = {life.node == node for life in story.lives.running() if life.partitions}
    return are_there == {True, False}


def evict(story: Story) -> Acts:
    """Evict a pod; another eviction at the same time is refused by the group's budget."""
    first, second = story.chance.sample([life for life in story.lives.running() if life.partitions], 2)
    uid = story.pods()[first.pod]["metadata"]["uid"]
    yield story.looks(
        f"{story.setting.namespace}: the budget permits an eviction", partial(is_permitted, story)
    )
    story.hit(EVICT, is_clean=True)
    ask_eviction(story, first)
    with pytest.raises(KubectlFailed, match="disruption budget"):
        ask_eviction(story, second)
    yield from again(story, [uid])


def is_permitted(story: Story) -> bool:
    """Return whether the controller of budgets has counted the pods that are ready."""
    name = f"poddisruptionbudget/rota-{story.setting.name}"
    found = story.cluster.get(name, namespace=story.setting.namespace)
    return bool(found.get("status", {}).get("disruptionsAllowed") == 1)


def ask_eviction(story: Story, life: Life) -> None:
    """Ask the API server for the eviction of a pod. Raises KubectlFailed when it is refused."""
    namespace = story.setting.namespace
    path = f"/api/v1/namespaces/{namespace}/pods/{life.pod}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": life.pod, "namespace": namespace},
    }
    story.cluster.kubectl("create", f"--raw={path}", "--filename=-", input=json.dumps(body))


def kill_sidecar(story: Story) -> Acts:
    """Kill a sidecar: its container starts again, and is the same member."""
    life = story.draw()
    story.hit(KILL_SIDECAR, frozenset(life.partitions))
    kill(story, life, SIDECAR)
    life.detach(steady_ms())
    yield from again(story, ())


def life_of(story: Story, life: Life) -> Life:
    """The same life, with what it has written since."""
    story.lives.read()
    return life


def kill_app(story: Story) -> Acts:
    """Kill an application: its container starts again."""
    life = story.draw()
    story.hit(KILL_APP, frozenset(life.partitions))
    kill(story, life, APP)
    life.end(steady_ms())
    yield from again(story, ())


def kill_both(story: Story) -> Acts:
    """Kill both containers of a pod."""
    life = story.draw()
    story.hit(KILL_BOTH, frozenset(life.partitions))
    kill(story, life, APP)
    life.end(steady_ms())
    kill(story, life, SIDECAR)
    yield from again(story, ())


def kill(story: Story, life: Life, container: str) -> None:
    """SIGKILL to a container's first process."""
    story.cluster.signal_container(signal.SIGKILL, life.pod, container, namespace=story.setting.namespace)


def in_flight(story: Story, count: int) -> Acts:
    """Delete the only pod while its application works on so many records: it finishes them, and no other works on them."""
    each = 2 * count // story.source.partitions + 1
    values = {
        partition: [f"{partition} {number}" for number in range(each)]
        for partition in range(story.source.partitions)
    }
    story.source.acknowledged |= story.setting.engine.produce(story.setting.topic, values)
    yield Wait(f"{count} records in flight", lambda: in_hand(story) >= count)
    [life] = story.lives.running()
    uid = story.pods()[life.pod]["metadata"]["uid"]
    begun = positions(life, "begun")
    story.hit(f"SIGTERM with {count} in flight", is_clean=True)
    story.kubectl("delete", "pod", life.pod, "--wait=false")
    yield Wait(f"{life.pod} has ended", lambda: life_of(story, life).has_ended)
    assert begun <= positions(life, "done"), "what was in flight is finished"
    yield from again(story, [uid])


def retire(story: Story) -> Acts:
    """Delete the workload: what breaks nodes later is not noted in this story."""
    story.kubectl("delete", story.setting.kind.lower(), story.setting.name, "--wait=false")
    yield story.looks(f"{story.setting.namespace}: no pod is left", lambda: not story.pods())


def in_hand(story: Story) -> int:
    """Number of records that running applications have begun and not done."""
    return sum(len(positions(life, "begun")) - len(positions(life, "done")) for life in story.lives.running())


def positions(life: Life, event: str) -> set[tuple[int, int]]:
    """Partition and offset of the records of these events."""
    return {(each["partition"], each["first"]) for each in life.events if each["event"] == event}
