"""Invariants of every run, each under its name. A violated one raises Violation, which ends the run."""

INVARIANTS = {
    # Safety, at every step or over all that was said and written (history.py, transactions.py, watch.py).
    "S1": "in one generation a partition has at most one owner: as it is written, and as members are told",
    "S2": "a member owns what it was given until it gives it up, a full group sends it away, or its session is over by its own "
    "clock, counted from the last heartbeat that the group saw, but not within a round; the times of two members never overlap",
    "S3": "incarnations and generations only rise, and the fences that members are told with them; none is issued twice, and no member id is given to two",
    "S4": "a commit is applied only for a member of the generation that it names, written or begun after that, and "
    "only where the written one gives the partition to nobody else; a request that is refused as a whole writes nothing",
    "S5": "an offset falls only by a late copy of its owner's own commit, or by its owner when that comes back in the "
    "same generation while a commit of its is under way, or by a client without the member's core that is its owner, "
    "or by a reset or expiry of an empty group; no commit of an earlier tenure is applied after one of a later tenure",
    "S6": "what was acknowledged is read by everybody who asks later, across crashes and compaction",
    "S7": "every offset in the log was sent for its partition, and applied no more often than it arrived",
    "S8": "nothing is committed that was not worked through, and a tenure begins where the work is done, or before",
    "S9": "what was handed over in good order is worked through once: the next tenure begins where the last one ended",
    "S10": "the running coordinator says what a restart would read; a compacted log says what the whole one said",
    "S11": "along a log the epoch never falls; a process that is not the owner answers nothing",
    "S12": "no success is answered before it is durable, and nothing is read that is not",
    "S13": "what is done for one group changes no other one",
    "S14": "members, ids that were handed out, records of one decision and a compacted log stay within bounds",
    "S17": "a group changes its state along Kafka's table only, and what it holds fits its state",
    "S18": "of the commits of a partition the one that was written last counts, if it is plain or of a transaction that was "
    "committed, whichever transaction ended last; what an aborted one brought counts never",
    # Liveness, at every step.
    "L2": "nobody is given up for a silence in which the coordinator stood still, up to one session of it; who leaves "
    "is replaced within a second, who dies within a session, a heartbeat and a second",
    # Liveness, after all is healed (run.py).
    "L1": "each group is whole again in time: one generation, every partition owned once; and the "
    "coordinators that are alive have equal shares of the slots",
    "L3": "where nothing happens there is no new generation, and for one change there are three at most",
    "L4": "members with the same subscription have equal shares, within one partition",
    "L5": "where a group is whole its commits rise, partition by partition, within a few heartbeats",
    "L7": "every partition that exists has an owner in time: also one that was added, while its group ran or while its "
    "leader was away",
    "L6": "every request is answered, or its connection ended",
}


class Violation(AssertionError):
    """An invariant was broken; the message begins with its name."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        assert name in INVARIANTS
        self.name = name
