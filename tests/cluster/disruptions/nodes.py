"""Acts on a node of the cluster, and so on the pods of all stories at once. The node on which the operator runs is only drained."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tests.cluster.disruptions import acts
from tests.cluster.disruptions.lives import Life
from tests.cluster.disruptions.story import Acts, Story, Wait, is_ready, run_all
from tests.cluster.disruptions.workloads import LABEL
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.addresses import NODES
from tests.support.cluster.rota_manifests import NAMESPACE, OPERATOR
from tests.support.processes import steady_ms, wait_for


def of_operator(cluster: Cluster) -> str:
    """Name of the node on which the operator runs."""
    path = "--output=jsonpath={.items[0].spec.nodeName}"
    return cluster.kubectl("get", "pods", f"--selector=app={OPERATOR}", f"--namespace={NAMESPACE}", path)


def other_than(name: str) -> str:
    """Name of the other node."""
    [found] = [node.name for node in NODES if node.name != name]
    return found


def drain(cluster: Cluster, stories: Sequence[Story], node: str) -> None:
    """Evict the pods of all stories from a node with `kubectl drain`, in good order; the node is open again afterwards."""
    evicted = {story: [uid_of(story, life) for life in on(story, node)] for story in stories}
    for story in stories:
        story.hit(acts.DRAIN, is_clean=True)
    draining = cluster.start_kubectl(
        "drain", node, f"--pod-selector={LABEL}", "--delete-emptydir-data", f"--timeout={WITHIN_S}s"
    )
    wait_for("the node is drained", lambda: draining.exit_code is not None, within_s=WITHIN_S, poll_s=0.2)
    assert draining.exit_code == 0, draining.tail()
    cluster.kubectl("uncordon", node)
    run_all(*(acts.again(story, evicted[story]) for story in stories))


class Loss(NamedTuple):
    """The applications of a story that were on a lost node, and the UIDs of their pods."""

    lives: Sequence[Life]
    uids: Sequence[str]


def cut_power(cluster: Cluster, stories: Sequence[Story], node: str) -> None:
    """Switch a node off; its pods are replaced on the other one, and it comes back."""
    losses = lose(stories, acts.POWER_CUT, node, cluster.stop_node)
    run_all(*(replaced(story, loss) for story, loss in losses.items()))
    cluster.repair()
    run_all(*(acts.again(story, loss.uids) for story, loss in losses.items()))


def cut_link(cluster: Cluster, stories: Sequence[Story], node: str) -> None:
    """Cut a node off until its pods are replaced, and mend the link: those that were replaced wake up and are fenced."""
    losses = lose(stories, acts.LINK_CUT, node, cluster.cut_link)
    run_all(*(replaced(story, loss) for story, loss in losses.items()))
    cluster.mend_link(node)
    run_all(*(woken(story, loss) for story, loss in losses.items()))
    cluster.repair()
    run_all(*(acts.again(story, loss.uids) for story, loss in losses.items()))


def lose(stories: Sequence[Story], what: str, node: str, disrupt: Callable[[str], None]) -> dict[Story, Loss]:
    """Note the loss of a node in all stories, and do it."""
    losses = {}
    for story in stories:
        lives = on(story, node)
        losses[story] = Loss(lives, [uid_of(story, life) for life in lives])
        story.hit(what, frozenset().union(*(life.partitions for life in lives)))
    disrupt(node)
    for loss in losses.values():
        for life in loss.lives:
            life.end(steady_ms())
    return losses


def replaced(story: Story, loss: Loss) -> Acts:
    """Wait until the partitions of lost pods have owners; pods of a Deployment are replaced, those of a StatefulSet are not."""
    yield story.owned()
    if story.setting.kind == "Deployment":

        def holds() -> bool:
            there = [each for each in story.pods().values() if each["metadata"]["uid"] not in loss.uids]
            return sum(map(is_ready, there)) == story.setting.replicas

        yield story.looks(f"{story.setting.namespace}: lost pods are replaced", holds)
        yield story.settled()


def woken(story: Story, loss: Loss) -> Acts:
    """Wait until those that were cut off know that they have lost their partitions."""
    for life in loss.lives:
        yield Wait(f"{life.pod} knows its loss", partial(knows_its_loss, story, life))


def knows_its_loss(story: Story, life: Life) -> bool:
    """Return whether an application has heard that its partitions are others', or has ended."""
    story.lives.read()
    assert life.ended_ms is not None
    return any(
        event["event"] in ("lost", "ended") and event["monotonic_ms"] > life.ended_ms for event in life.events
    )


def on(story: Story, node: str) -> list[Life]:
    """The applications of a story that run on a node."""
    return [life for life in story.lives.running() if life.node == node]


def uid_of(story: Story, life: Life) -> str:
    """UID of the pod of an application."""
    return str(story.pods()[life.pod]["metadata"]["uid"])
