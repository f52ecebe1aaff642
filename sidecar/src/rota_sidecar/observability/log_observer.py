"""Writes what happens to the event log: joins, assignments, revocations, problems. An observer of the delivery driver."""

from collections.abc import Collection, Sequence

from typing_extensions import override

from rota_service.event_log import EventLog
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member import actions as member_do
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.observer import Observer
from rota_sidecar.membership.driver import (
    STATE_FILE_RECOVERED,
    ForeignProtocol,
    MemberEvent,
    StateFileRecovered,
)

SHOWN_MAX = 20


class LoggingObserver(Observer):
    """Observer that logs rebalances, problems and the end of the member."""

    observed_events = frozenset({on.LeftGroup})
    observed_actions = frozenset({do.Problem, do.Rejoin, do.AwaitSuccessor, do.StopDispatch})

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log

    @override
    def on_member_event(self, event: MemberEvent, now_ms: int) -> None:
        match event:
            case member_do.Problem():
                self._event_log.warning(event.message)
            case ForeignProtocol():
                self._event_log.warning(
                    f"the group now runs the {event.type} protocol: stop the consumer that uses it"
                )
            case member_do.Lost():
                self._event_log.warning(f"lost {format_partitions(event.partitions)}: {event.reason}")
            case _:
                self._log_progress(event)

    def _log_progress(self, event: MemberEvent) -> None:
        match event:
            case member_do.Joined():
                self._event_log.info("joined", f"joined generation {event.generation} as {event.member_id}")
            case member_do.Assign(partitions=partitions) if partitions:
                self._event_log.info("assigned", f"assigned {format_partitions(partitions)}")
            case member_do.Revoked():
                self._event_log.info("revoked", f"revoked {format_partitions(event.partitions)}")
            case member_do.Ended():
                self._event_log.info("stopped", f"the member has stopped: {event.reason}")
            case StateFileRecovered():
                self._event_log.info("kept", STATE_FILE_RECOVERED)
            case _:
                pass

    @override
    def on_event(self, event: on.Event, now_ms: int) -> None:
        if isinstance(event, on.LeftGroup):
            self._event_log.info("left", "left the group")

    @override
    def on_actions(self, actions: Sequence[do.Action], in_flight: int, now_ms: int) -> None:
        for action in actions:
            match action:
                case do.Problem():
                    self._event_log.warning(problem_text(action))
                case do.Rejoin():
                    self._event_log.info("rejoining", "joining again")
                case do.AwaitSuccessor():
                    wait_s = (action.until_ms - now_ms) / 1000
                    message = f"the pod ends; its application is served until a successor waits, for at most {wait_s:g} s"
                    self._event_log.info("awaiting", message)
                case do.StopDispatch():
                    self._event_log.info("draining", "draining, dispatch has stopped: the pod ends")
                case _:
                    pass


def problem_text(problem: do.Problem) -> str:
    """Return the message of a problem, with its partitions in front."""
    return (
        f"{format_partitions(problem.partitions)}: {problem.message}"
        if problem.partitions
        else problem.message
    )


def format_partitions(partitions: Collection[Partition]) -> str:
    """Return the names of partitions, at most SHOWN_MAX of them."""
    shown = sorted(partitions)[:SHOWN_MAX]
    names = ", ".join(f"{topic}-{number}" for topic, number in shown)
    more = len(partitions) - len(shown)
    return f"{names} and {more} more" if more else names
