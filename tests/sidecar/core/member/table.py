"""
State table of the member core: the next state and the actions for each pair of state and event.

`python -m tests.sidecar.core.member.table` writes docs/member-states.md; `test_table.py` compares the page with the core.
"""

from collections.abc import Callable
from pathlib import Path

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.config import Strategy, Subscription
from rota_sidecar.core.member.partitions import Offset
from tests.sidecar.core.member import design_names
from tests.sidecar.core.member.driven import COOPERATIVE, EAGER, MEMBER_ID, Driven, names
from tests.support.tree import REPO

PAGE = REPO / "docs" / "member-states.md"
HEAD = """# State transitions of a member

Each state of the member core with each event. `python -m tests.sidecar.core.member.table` generates this page, and a test
compares it with the core. `rota_sidecar/core/member/states.py` defines the states, `events.py` the events, `actions.py` the
actions. A dash means that the member ignores the event: it is late, or for another member. The member of these tables is
cooperative, except in `Revoking, to rejoin`. `reactions.py` holds the reaction to each error code of each response.
"""


def discovering() -> Driven:
    driven = Driven()
    driven.start()
    return driven


def waiting_to_search() -> Driven:
    driven = discovering()
    driven.step(on.CallFailed(driven.last(do.FindCoordinator).call, "nobody answers"))
    return driven


def joining() -> Driven:
    driven = discovering()
    driven.find()
    driven.refuse_join(pb.MEMBER_ID_REQUIRED, MEMBER_ID)
    return driven


def waiting_to_join() -> Driven:
    driven = joining()
    driven.refuse_join(pb.REBALANCE_IN_PROGRESS)
    return driven


def waiting_for_topics() -> Driven:
    driven = Driven(subscription=Subscription(pattern="ord.*"))
    driven.start()
    driven.find()
    return driven


def joining_with_partitions() -> Driven:
    driven = stable()
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    return driven


def syncing() -> Driven:
    driven = joining()
    driven.answer_join()
    return driven


def leading() -> Driven:
    driven = joining()
    driven.answer_join(leads=True)
    return driven


def stable() -> Driven:
    return Driven().join(0, 1)


def stable_leader() -> Driven:
    return Driven().join(0, 1, leads=True)


def revoking_to_rejoin() -> Driven:
    driven = Driven(EAGER).join(0, 1)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    return driven


def revoking_to_depart() -> Driven:
    driven = stable()
    driven.end()
    return driven


def revoking_for_a_successor() -> Driven:
    driven = stable()
    driven.end(is_succeeded=True)
    return driven


def lost(of: Callable[[], Driven]) -> Callable[[], Driven]:
    """The same, with the coordinator lost."""

    def prepare() -> Driven:
        driven = of()
        driven.step(on.CoordinatorLost("it went away"))
        return driven

    return prepare


def leaving(*, final: bool) -> Callable[[], Driven]:
    def prepare() -> Driven:
        driven = stable()
        driven.end(final=final)
        driven.give_up()
        return driven

    return prepare


def departed(*, final: bool) -> Callable[[], Driven]:
    def prepare() -> Driven:
        driven = leaving(final=final)()
        call, _ = driven.sent(pb.LeaveGroupRequest)
        driven.step(on.ResponseReceived(call, pb.LeaveGroupResponse()))
        return driven

    return prepare


STATES: dict[str, Callable[[], Driven]] = {
    "Down": Driven,
    "Down, leaving": leaving(final=False),
    "Discover, searching": discovering,
    "Discover, waiting": waiting_to_search,
    "Joining": joining,
    "Joining, with partitions": joining_with_partitions,
    "Joining, waiting": waiting_to_join,
    "Joining, without topics": waiting_for_topics,
    "Syncing": syncing,
    "Syncing, leading": leading,
    "Stable": stable,
    "Stable, leading": stable_leader,
    "Revoking, to rejoin": revoking_to_rejoin,
    "Revoking, to depart": revoking_to_depart,
    "Revoking, for a successor": revoking_for_a_successor,
    "Rediscover, was stable": lost(stable),
    "Rediscover, was revoking": lost(revoking_to_rejoin),
    "Stopped, leaving": leaving(final=True),
    "Stopped": departed(final=True),
}


def last_call(driven: Driven) -> int:
    """The number of the last call of any kind, or one that there never was."""
    calls = [
        action.call
        for action in driven.done
        if isinstance(action, do.FindCoordinator | do.SendRequest | do.ComputeAssignment)
    ]
    return calls[-1] if calls else 999


def coordinator_found(driven: Driven) -> on.Event:
    return on.CoordinatorFound(last_call(driven), pb.NONE)


def response_received(driven: Driven) -> on.Event:
    """The answer that the last request waits for, and a heartbeat's where there is none."""
    request = next(
        (action.request for action in reversed(driven.done) if isinstance(action, do.SendRequest)),
        pb.HeartbeatRequest(),
    )
    match request:
        case pb.JoinGroupRequest():
            response = pb.JoinGroupResponse(generation_id=9, member_id=MEMBER_ID, leader="other")
            return on.ResponseReceived(last_call(driven), response)
        case pb.SyncGroupRequest():
            return on.ResponseReceived(last_call(driven), pb.SyncGroupResponse())
        case pb.LeaveGroupRequest():
            return on.ResponseReceived(last_call(driven), pb.LeaveGroupResponse())
        case _:
            return on.ResponseReceived(last_call(driven), pb.HeartbeatResponse())


def assignment_computed(driven: Driven) -> on.Event:
    return on.AssignmentComputed(last_call(driven), [], {"orders": 6})


def partitions_released(driven: Driven) -> on.Event:
    revocations = [action.revocation for action in driven.done if isinstance(action, do.Revoke)]
    return on.PartitionsReleased(revocations[-1] if revocations else 999)


def commit(driven: Driven) -> on.Event:
    return on.Commit(1, {each: Offset(tenure.number, 5) for each, tenure in driven.member.held.items()})


def tick(driven: Driven) -> on.Event:
    """The alarm rings."""
    alarm = driven.member.alarm
    if alarm is not None:
        driven.now_ms = max(driven.now_ms, alarm.at_ms + alarm.spread_ms)
    return on.Tick()


EVENTS: dict[str, Callable[[Driven], on.Event]] = {
    "Start": lambda driven: on.Start(),
    "End, final": lambda driven: on.End(30_000, "told to"),
    "End, for a successor": lambda driven: on.End(30_000, "told to", is_succeeded=True),
    "End, for a while": lambda driven: on.End(30_000, "told to", final=False),
    "Subscribe": lambda driven: on.Subscribe(Subscription(("orders", "other"))),
    "OfferStrategies": lambda driven: on.OfferStrategies((*COOPERATIVE, Strategy("mine", cooperative=True))),
    "Rebalance": lambda _: on.Rebalance("told to"),
    "TopicsDescribed": lambda driven: on.TopicsDescribed({"orders": 7}),
    "RatesMeasured": lambda driven: on.RatesMeasured({"orders": {0: 5.0}}),
    "CoordinatorFound": coordinator_found,
    "ResponseReceived, for the last request": response_received,
    "CallFailed, the last call": lambda driven: on.CallFailed(last_call(driven), "no answer"),
    "CallFailed, refused": lambda driven: on.CallFailed(last_call(driven), "not allowed", refused=True),
    "CallFailed, an abandoned call": lambda driven: on.CallFailed(0, "no answer"),
    "AssignmentComputed": assignment_computed,
    "HeartbeatRequested": lambda _: on.HeartbeatRequested(),
    "RebalanceNoticed": lambda driven: on.RebalanceNoticed(MEMBER_ID, driven.generation),
    "CoordinatorLost": lambda driven: on.CoordinatorLost("it went away again"),
    "PartitionsReleased": partitions_released,
    "Commit": commit,
    "Fetch": lambda driven: on.Fetch(1, [*driven.member.held]),
    "Tick, at the alarm": tick,
}


def described(state: str, event: str) -> str:
    """One cell: the state after it if that is another one, and what is done."""
    driven = STATES[state]()
    before = driven.member.state
    actions = driven.step(EVENTS[event](driven))
    after = driven.member.state
    moved = type(after).__name__ if type(after) is not type(before) else ""
    done = ", ".join(names(actions))
    return " · ".join(filter(None, (moved, done))) or "–"


def page() -> str:
    """The whole page, one table for each state."""
    parts = [HEAD, design_names.section()]
    for state in STATES:
        rows = [f"| {event} | {described(state, event)} |" for event in EVENTS]
        parts.append(
            "\n".join([f"\n## {state}\n", "| event | next state · actions |", "|---|---|", *rows]) + "\n"
        )
    return "".join(parts)


def kinds_of_states() -> set[type]:
    """The states that rows begin in."""
    return {type(prepare().member.state) for prepare in STATES.values()}


ALL_STATES = {st.Down, st.Discover, st.Joining, st.Syncing, st.Stable, st.Revoking, st.Rediscover, st.Stopped}


def main(page_file: Path = PAGE) -> None:
    """Write the page."""
    page_file.write_text(page())


if __name__ == "__main__":
    main()
