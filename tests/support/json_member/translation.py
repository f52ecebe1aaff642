"""
Translate between JSON lines and a membership: member events become lines, commands become member events.

Made by `__main__`, between the lines and the membership. README.md lists every event and command.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.config.validation import assignor_problem
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.config import Strategy
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.partitions import Offset, Partition, by_topic
from rota_sidecar.engines.port import CoordinatorEvent
from rota_sidecar.membership.driver import (
    ForeignProtocol,
    MemberEvent,
    Membership,
    StateChanged,
    StateFileRecovered,
)
from tests.support.json_member import commands
from tests.support.json_member.commands import InvalidCommand

NO_TENURE = 0
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one JSON member."""

    group_id: str
    # Every strategy that can be offered.
    strategies: Mapping[str, Strategy]
    # Revoked partitions are released at once; else by the command `revoked`.
    acknowledges: bool
    leave_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks that stamp events, in milliseconds."""

    wall_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]


class JsonMember:
    """One membership as JSON lines. Invariant: each `commit` and `fetch` is answered once, with its id."""

    def __init__(self, settings: Settings, clocks: Clocks, write: Callable[[bytes], None]) -> None:
        self._settings = settings
        self._clocks = clocks
        self._write = write
        self._membership: Membership | None = None
        # The ids of commands, by the number of the member's request.
        self._asked: dict[int, commands.Id] = {}
        self._requests = 0
        # The last generation: revoked and lost partitions belong to it.
        self._last = Identity()

    def attach_member(self, membership: Membership) -> None:
        """To be called once, before the membership runs."""
        self._membership = membership

    def listen(self, event: MemberEvent) -> None:
        """Write a member event as a line."""
        self._put(self._event(event))
        if isinstance(event, do.Revoke) and self._settings.acknowledges:
            self._running.post(on.PartitionsReleased(event.revocation))

    def execute(self, line: bytes | None) -> None:
        """Execute the command of a line, or answer why it is refused."""
        try:
            if line is None:
                raise InvalidCommand("the line is too long")
            self._running.post(self._event_of(commands.parsed(line)))
        except InvalidCommand as bad:
            self._put({"event": "refused", "id": bad.asked, "sentence": str(bad)})

    def end(self, reason: str) -> None:
        """Revoke everything, leave the group and end."""
        self._running.post(on.End(self._settings.leave_timeout_ms, reason))

    def on_coordinator_event(self, event: CoordinatorEvent) -> None:
        """Forward an event of the coordinator's connection to the member."""
        self._running.on_coordinator_event(event)

    @property
    def _running(self) -> Membership:
        assert self._membership is not None
        return self._membership

    def _put(self, event: Fields) -> None:
        stamp = {
            "group_id": self._settings.group_id,
            "member_id": self._last.member_id,
            "generation": self._last.generation,
            "incarnation": self._last.incarnation,
            "at_ms": self._clocks.wall_ms(),
            "monotonic_ms": self._clocks.monotonic_ms(),
        }
        self._write(json.dumps(event | stamp).encode())

    def _event(self, event: MemberEvent) -> Fields:
        match event:
            case StateChanged():
                return {"event": "state", "state": event.state}
            case do.Joined():
                self._last = Identity(event.member_id, event.generation, event.strategy, event.incarnation)
                return {"event": "joined", "assignor": event.strategy, "leads": event.leads}
            case do.Problem():
                return {"event": "problem", "sentence": event.message}
            case ForeignProtocol():
                return {"event": "foreign_protocol", "type": event.type}
            case StateFileRecovered():
                return {"event": "kept"}
            case do.Ended():
                return {"event": "stopped", "reason": event.reason, "failed": event.failed}
            case do.Committed() | do.Fetched():
                return self._answer(event)
            case _:
                return self._change(event)

    def _change(
        self,
        event: do.Assign | do.Revoke | do.Revoked | do.Lost | do.GiveUpMembership | do.CoordinatorRegained,
    ) -> Fields:
        match event:
            case do.GiveUpMembership():
                return {"event": "given_up", "member_id": event.saved.member_id}
            case do.CoordinatorRegained():
                return {"event": "coordinator_regained"}
            case do.Assign():
                partitions, tenure = by_topic(event.partitions), event.tenure.number
                return {"event": "assigned", "partitions": partitions, "tenure": tenure}
            case do.Revoke():
                within_ms = max(0, event.deadline_ms - self._running.now_ms())
                partitions = by_topic(event.partitions)
                return {
                    "event": "revoking",
                    "revocation": event.revocation,
                    "partitions": partitions,
                    "within_ms": within_ms,
                }
            case do.Revoked():
                return {"event": "revoked", "partitions": by_topic(event.partitions)}
            case do.Lost():
                return {"event": "lost", "partitions": by_topic(event.partitions), "reason": event.reason}
            case _:
                assert_never(event)

    def _answer(self, event: do.Committed | do.Fetched) -> Fields:
        asked = self._asked.pop(event.request, None)
        if isinstance(event, do.Committed):
            errors = [
                {**named(partition), "error": error_name(error)}
                for partition, error in sorted(event.errors.items())
                if error != pb.NONE
            ]
            done = [partition for partition, error in event.errors.items() if error == pb.NONE]
            return {"event": "committed", "id": asked, "partitions": by_topic(done), "errors": errors}
        offsets = [
            {
                **named(Partition(topic.name, each.index)),
                "offset": each.offset,
                "leader_epoch": each.leader_epoch,
                "metadata": each.metadata,
                "error": error_name(each.error_code),
            }
            for topic in event.topics
            for each in topic.partitions
        ]
        return {"event": "fetched", "id": asked, "error": error_name(event.error), "offsets": offsets}

    def _event_of(self, command: commands.Command) -> on.Event:
        match command:
            case commands.Commit() | commands.Fetch():
                return self._request(command)
            case commands.Revoked():
                return on.PartitionsReleased(command.revocation)
            case commands.Subscribe():
                return on.Subscribe(command.subscription)
            case commands.Offer():
                return on.OfferStrategies(self._strategies(command.names))
            case commands.Rates():
                return on.RatesMeasured(command.rates)
            case commands.Join():
                return on.Start()
            case commands.Leave():
                return self._ending(command)

    def _ending(self, command: commands.Leave) -> on.End:
        within_ms = self._settings.leave_timeout_ms if command.within_ms is None else command.within_ms
        reason = f"told to {'stop' if command.final else 'leave'}"
        return on.End(within_ms, reason, command.final, command.leave_static)

    def _request(self, command: commands.Commit | commands.Fetch) -> on.Commit | on.Fetch:
        self._requests += 1
        self._asked[self._requests] = command.asked
        held = self._running.member.held
        if isinstance(command, commands.Fetch):
            partitions = sorted(held) if command.partitions is None else command.partitions
            return on.Fetch(self._requests, partitions)
        offsets = {}
        for each in command.offsets:
            tenure = each.tenure
            if tenure is None:
                tenure = held[each.partition].number if each.partition in held else NO_TENURE
            offsets[each.partition] = Offset(tenure, each.offset, each.leader_epoch, each.metadata)
        return on.Commit(self._requests, offsets)

    def _strategies(self, names: Iterable[str]) -> tuple[Strategy, ...]:
        wanted = list(names)
        wrong = assignor_problem(wanted, self._settings.strategies)
        if wrong:
            raise InvalidCommand(wrong)
        return tuple(self._settings.strategies[name] for name in wanted)


def named(partition: Partition) -> Fields:
    """The fields that name a partition."""
    return {"topic": partition.topic, "partition": partition.number}


def error_name(error: pb.ErrorCode.ValueType) -> str:
    """Kafka's name of an error code, or its number when the code is unknown."""
    return pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)
