"""Interface for counting and logging deliveries. Called by the delivery driver; implementations are fast and do not raise."""

from collections.abc import Collection, Sequence
from typing import ClassVar, Protocol, get_args

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.membership.driver import MemberEvent


class Observer(Protocol):
    """
    An observer of one delivery driver, called in the order of its events.

    Invariant: it is called only for what it observes, so a record costs nothing that does not concern it.
    """

    # Types of events for which `on_event` is called.
    observed_events: ClassVar[frozenset[type[on.Event]]]
    # Types of actions for which `on_actions` is called: with all actions of a step, if one of them has such a type.
    observed_actions: ClassVar[frozenset[type[do.Action]]]
    # True: `on_actions` is also called when the number of records in flight has changed.
    observes_in_flight: ClassVar[bool] = False

    def on_member_event(self, event: MemberEvent, now_ms: int) -> None:
        """Observe an event of the member."""
        ...

    def on_event(self, event: on.Event, now_ms: int) -> None:
        """Observe an event of an observed type before the core handles it."""
        ...

    def on_actions(self, actions: Sequence[do.Action], in_flight: int, now_ms: int) -> None:
        """Observe the core's actions before they are performed, with the number of records in flight after them."""
        ...


class Observers:
    """The observers of one driver, by what they observe, in the order in which they were given."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all = tuple(observers)
        self._of_events = {
            kind: tuple(each for each in observers if kind in each.observed_events)
            for kind in get_args(on.Event)
        }
        self._of_actions = {
            kind: tuple(each for each in observers if kind in each.observed_actions)
            for kind in get_args(do.Action)
        }
        self._of_in_flight = tuple(each for each in observers if each.observes_in_flight)
        # Number of records in flight after the last step.
        self._in_flight = 0

    @property
    def all(self) -> Sequence[Observer]:
        """Return all of them."""
        return self._all

    def of_event(self, kind: type[on.Event]) -> Sequence[Observer]:
        """Return those that observe events of this type."""
        return self._of_events[kind]

    def of_actions(self, actions: Sequence[do.Action], in_flight: int) -> Collection[Observer]:
        """Return those that observe one of the actions of a step, or that the number of records in flight has changed."""
        found: dict[Observer, None] = {}
        for action in actions:
            for observer in self._of_actions[type(action)]:
                found[observer] = None
        if in_flight != self._in_flight:
            self._in_flight = in_flight
            found.update(dict.fromkeys(self._of_in_flight))
        return found
