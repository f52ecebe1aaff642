"""Observers are called for what they observe: each declares the types that its methods handle, no more and no fewer."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import get_args

import pytest

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.observer import Observer, Observers
from rota_sidecar.observability.counters import Counters
from rota_sidecar.observability.log_observer import LoggingObserver
from rota_sidecar.observability.progress import ProgressTimes
from rota_sidecar.observability.uncommitted import UncommittedTimestamps

OBSERVERS: list[type[Observer]] = [Counters, LoggingObserver, ProgressTimes, UncommittedTimestamps]


def named(method: Callable[..., object], module: str) -> set[str]:
    """Return the names of a module that a method uses."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == module
    }


@pytest.mark.parametrize("observer", OBSERVERS)
def test_an_observer_declares_what_it_handles(observer: type[Observer]) -> None:
    events = {kind.__name__ for kind in get_args(on.Event)}
    assert {kind.__name__ for kind in observer.observed_events} == named(observer.on_event, "on") & events
    actions = {kind.__name__ for kind in get_args(do.Action)}
    assert {kind.__name__ for kind in observer.observed_actions} == named(observer.on_actions, "do") & actions


def test_observers_are_called_for_their_types_and_the_counters_for_each_change_of_records_in_flight() -> None:
    counters, progress = Counters(), ProgressTimes(lambda: 0)
    observers = Observers([progress, counters])
    settled = do.Settled(Partition("orders", 0), "ack", 1)
    assert observers.of_event(on.Credit) == ()
    assert observers.of_event(on.Lost) == (progress, counters)
    assert list(observers.of_actions([settled, settled], 0)) == [progress, counters]
    assert list(observers.of_actions([do.Rejoin()], 0)) == []
    assert list(observers.of_actions([do.Rejoin()], 3)) == [counters]
