"""Disruptions in an order that a seed draws, for some time: of pods in one story after the other, or of a node, which hits all of them."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tests.cluster.disruptions import acts, nodes
from tests.cluster.disruptions.story import Acts, Story, run_in_turn
from tests.support.cluster import Cluster
from tests.support.processes import steady_ms

Card = TypeVar("Card")
Act = Callable[[Story], Acts]
NodeAct = Callable[[Cluster, Sequence[Story]], None]


def cut_power(cluster: Cluster, stories: Sequence[Story]) -> None:
    """Switch the node off on which the operator does not run; it comes back."""
    nodes.cut_power(cluster, stories, node_to_lose(cluster, stories))


def cut_link(cluster: Cluster, stories: Sequence[Story]) -> None:
    """Cut that node off until its pods are replaced."""
    nodes.cut_link(cluster, stories, node_to_lose(cluster, stories))


def drain(cluster: Cluster, stories: Sequence[Story]) -> None:
    """Drain the node on which the operator runs."""
    nodes.drain(cluster, stories, nodes.of_operator(cluster))


def node_to_lose(cluster: Cluster, stories: Sequence[Story]) -> str:
    """Return the name of the node on which the operator does not run, once each story has a pod with partitions there."""
    node = nodes.other_than(nodes.of_operator(cluster))
    run_in_turn(*(acts.spread(story, node) for story in stories))
    return node


# What happens more often in a cluster is more often in the deck. Of 27 rounds three break a node; of 18 acts on pods three kill.
IN_ORDER: tuple[Act, ...] = (acts.delete_pod, acts.evict, acts.rolling_restart)
KILLS: tuple[Act, ...] = (acts.kill_sidecar, acts.kill_app, acts.kill_both)
OF_NODES: tuple[NodeAct, ...] = (cut_power, cut_link, drain)
POD_DECK: Sequence[Act] = IN_ORDER * 5 + KILLS
# None: acts on pods, one of each story's deck.
ROUND_DECK: Sequence[NodeAct | None] = (*(None,) * 24, *OF_NODES)


def drawn(chance: random.Random, deck: Sequence[Card]) -> Iterator[Card]:
    """Yield the cards of a deck in a drawn order, and then again in another one."""
    while True:
        yield from chance.sample(deck, len(deck))


def mix(cluster: Cluster, stories: Sequence[Story], seed: int, for_s: float) -> int:
    """Disrupt for some time; return the number of rounds. Each ends when partitions are shared, and what was produced is committed."""
    until_ms = steady_ms() + for_s * 1000
    rounds = drawn(random.Random(f"{seed} rounds"), ROUND_DECK)
    decks = [drawn(story.chance, POD_DECK) for story in stories]
    played = 0
    while steady_ms() < until_ms:
        of_node = next(rounds)
        if of_node is None:
            run_in_turn(*(next(deck)(story) for story, deck in zip(stories, decks, strict=True)))
        else:
            of_node(cluster, stories)
        played += 1
    return played
