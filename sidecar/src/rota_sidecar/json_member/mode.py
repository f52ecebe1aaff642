"""
A bare member for people, tests and drivers: what happens goes out as JSON lines, what is wanted comes in as JSON lines.

Put together by `program`, between the lines and the membership. docs/guide/sidecar.md lists every event and command.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.config.validation import strategies_problem
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.config import Strategy
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.partitions import Offset, Partition, by_topic
from rota_sidecar.engines.port import Heard
from rota_sidecar.json_member import commands as said
from rota_sidecar.json_member.commands import BadLine
from rota_sidecar.membership.driver import (
    ForeignProtocol,
    MemberEvent,
    Membership,
    StateChanged,
    StateFileRecovered,
)

NO_TENURE = 0
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the mode is told when it starts."""

    group_id: str
    # Every strategy that can be offered.
    strategies: Mapping[str, Strategy]
    # Else whoever sends commands says when revoked partitions are let go.
    acknowledges: bool
    leave_timeout_ms: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """When something happened, in milliseconds."""

    wall_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]


class MembershipOnly:
    """One membership in lines."""

    def __init__(self, settings: Settings, clocks: Clocks, write: Callable[[bytes], None]) -> None:
        self._settings = settings
        self._clocks = clocks
        self._write = write
        self._membership: Membership | None = None
        # By what those who asked recognize their answers; each request is answered.
        self._asked: dict[int, said.Id] = {}
        self._requests = 0
        # The generation that it was in last: what it gives up or loses belongs to that, whatever comes next.
        self._last = Identity()

    def attach_member(self, membership: Membership) -> None:
        """To be called once, before the membership runs."""
        self._membership = membership

    def listen(self, told: MemberEvent) -> None:
        """Write down what happened."""
        self._put(self._event(told))
        if isinstance(told, do.Revoke) and self._settings.acknowledges:
            self._running.post(on.PartitionsReleased(told.revocation))

    def obey(self, line: bytes | None) -> None:
        """Do what the line says, or say what is wrong with it."""
        try:
            if line is None:
                raise BadLine("the line is too long")
            self._running.post(self._wish(said.parsed(line)))
        except BadLine as bad:
            self._put({"event": "refused", "id": bad.asked, "sentence": str(bad)})

    def end(self, reason: str) -> None:
        """Give up everything, and end."""
        self._running.post(on.End(self._settings.leave_timeout_ms, reason))

    def hear(self, heard: Heard) -> None:
        """What the coordinator's connection says by itself."""
        self._running.on_coordinator_event(heard)

    @property
    def _running(self) -> Membership:
        assert self._membership is not None
        return self._membership

    def _put(self, event: Facts) -> None:
        stamp = {
            "group_id": self._settings.group_id,
            "member_id": self._last.member_id,
            "generation": self._last.generation,
            "incarnation": self._last.incarnation,
            "at_ms": self._clocks.wall_ms(),
            "monotonic_ms": self._clocks.monotonic_ms(),
        }
        self._write(json.dumps(event | stamp).encode())

    def _event(self, told: MemberEvent) -> Facts:
        match told:
            case StateChanged():
                return {"event": "state", "state": told.state}
            case do.Joined():
                self._last = Identity(told.member_id, told.generation, told.strategy, told.incarnation)
                return {"event": "joined", "assignor": told.strategy, "leads": told.leads}
            case do.Problem():
                return {"event": "problem", "sentence": told.sentence}
            case ForeignProtocol():
                return {"event": "foreign_protocol", "type": told.type}
            case StateFileRecovered():
                return {"event": "kept"}
            case do.Ended():
                return {"event": "stopped", "reason": told.reason, "failed": told.failed}
            case do.Committed() | do.Fetched():
                return self._answer(told)
            case _:
                return self._change(told)

    def _change(self, told: do.Assign | do.Revoke | do.Revoked | do.Lost) -> Facts:
        match told:
            case do.Assign():
                partitions, tenure = by_topic(told.partitions), told.tenure.number
                return {"event": "assigned", "partitions": partitions, "tenure": tenure}
            case do.Revoke():
                within_ms = max(0, told.deadline_ms - self._running.now_ms())
                partitions = by_topic(told.partitions)
                return {
                    "event": "revoking",
                    "revocation": told.revocation,
                    "partitions": partitions,
                    "within_ms": within_ms,
                }
            case do.Revoked():
                return {"event": "revoked", "partitions": by_topic(told.partitions)}
            case do.Lost():
                return {"event": "lost", "partitions": by_topic(told.partitions), "reason": told.reason}
            case _:
                assert_never(told)

    def _answer(self, told: do.Committed | do.Fetched) -> Facts:
        asked = self._asked.pop(told.request, None)
        if isinstance(told, do.Committed):
            errors = [
                {**named(partition), "error": error_name(error)}
                for partition, error in sorted(told.errors.items())
                if error != pb.NONE
            ]
            done = [partition for partition, error in told.errors.items() if error == pb.NONE]
            return {"event": "committed", "id": asked, "partitions": by_topic(done), "errors": errors}
        offsets = [
            {
                **named(Partition(topic.name, each.index)),
                "offset": each.offset,
                "leader_epoch": each.leader_epoch,
                "metadata": each.metadata,
                "error": error_name(each.error_code),
            }
            for topic in told.topics
            for each in topic.partitions
        ]
        return {"event": "fetched", "id": asked, "error": error_name(told.error), "offsets": offsets}

    def _wish(self, command: said.Command) -> on.Event:
        match command:
            case said.Commit() | said.Fetch():
                return self._request(command)
            case said.LetGo():
                return on.PartitionsReleased(command.revocation)
            case said.Subscribe():
                return on.Subscribe(command.subscription)
            case said.Offer():
                return on.OfferStrategies(self._strategies(command.names))
            case said.Rates():
                return on.RatesMeasured(command.rates)
            case said.Join():
                return on.Start()
            case said.Leave():
                return self._ending(command)

    def _ending(self, command: said.Leave) -> on.End:
        within_ms = self._settings.leave_timeout_ms if command.within_ms is None else command.within_ms
        reason = f"told to {'stop' if command.final else 'leave'}"
        return on.End(within_ms, reason, command.final, command.leave_static)

    def _request(self, command: said.Commit | said.Fetch) -> on.Commit | on.Fetch:
        self._requests += 1
        self._asked[self._requests] = command.asked
        held = self._running.member.held
        if isinstance(command, said.Fetch):
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
        wrong = strategies_problem(wanted, self._settings.strategies)
        if wrong:
            raise BadLine(wrong)
        return tuple(self._settings.strategies[name] for name in wanted)


def named(partition: Partition) -> Facts:
    """The partition, as one of many."""
    return {"topic": partition.topic, "partition": partition.number}


def error_name(error: pb.ErrorCode.ValueType) -> str:
    """Kafka's name of it; its number when it is none that we know."""
    return pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)
