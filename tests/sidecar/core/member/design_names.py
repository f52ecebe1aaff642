"""
States in Kafka's first design of the group protocol, and the states of Rota that stand for them.

`table.py` puts them at the head of docs/member-states.md; `test_table.py` holds that each state exists, and that none is left out.
"""

from typing import NamedTuple


class DesignName(NamedTuple):
    """A state of the design, Rota's states for it, and what happens in them."""

    design: str
    # Names in the code; several where Rota distinguishes what the design does not.
    states: tuple[str, ...]
    meaning: str


SLOT = (
    DesignName("Down", ("Down",), "another process serves the slot, or none: requests get `NOT_COORDINATOR`"),
    DesignName(
        "Catch-up",
        ("CatchUp",),
        "groups and offsets are loaded from the store: requests get `COORDINATOR_LOAD_IN_PROGRESS`",
    ),
    DesignName("Ready", ("Ready",), "the groups of the slot are served, each in one of the states below"),
)
GROUP = (
    DesignName("Ready", ("Empty",), "no members; offsets can be committed and fetched"),
    DesignName(
        "Prepare",
        ("PreparingRebalance",),
        "members are told to rejoin, by a notice or by `REBALANCE_IN_PROGRESS`; their JoinGroup requests wait for each other",
    ),
    DesignName(
        "Rebalancing",
        ("CompletingRebalance",),
        "the new generation has begun, and its leader computes the assignment; SyncGroup requests wait for it",
    ),
    DesignName("Steady", ("Stable",), "the assignment is stored and distributed"),
)
MEMBER = (
    DesignName("Down", ("Down",), "not in the group, and not joining"),
    DesignName("Discover", ("Discover",), "looks for the coordinator, to join the group"),
    DesignName(
        "Part of group",
        ("Joining", "Syncing", "Stable"),
        "known to the coordinator. Cooperative members go on reading their partitions in all three, eager ones have none before "
        "`Stable`; offsets are committed in `Stable` and in `Revoking`",
    ),
    DesignName(
        "Re-discover",
        ("Rediscover",),
        "looks for the coordinator again, keeps membership and partitions, and goes back to the state before, or to "
        "`Discover` when the session timeout has passed",
    ),
    DesignName(
        "Stopped consumption",
        ("Revoking",),
        "the application finishes and releases partitions: those that move or, of an eager member, all of them, before it rejoins",
    ),
    DesignName("–", ("Stopped",), "ended for good; a member is created anew"),
)
PARTS = {
    "Coordinator: a slot, `SlotState` in `rota_coordinator/runtime/replicated_state.py`": SLOT,
    "Coordinator: a group, `State` in `rota_coordinator/core/group/state.py`; Kafka's names": GROUP,
    "Member, `rota_sidecar/core/member/states.py`": MEMBER,
}


def section() -> str:
    """The section of the page."""
    parts = [
        "\n## Names of states\n\nKafka's design of a coordinator for groups called the states differently.\n"
    ]
    for title, names in PARTS.items():
        rows = [
            f"| {each.design} | {', '.join(f'`{state}`' for state in each.states)} | {each.meaning} |"
            for each in names
        ]
        parts.append(f"\n{title}:\n\n| in the design | here | |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)
