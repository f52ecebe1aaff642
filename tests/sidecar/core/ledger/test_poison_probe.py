"""After a cut-off little goes out at first, announced by commits; then more and more."""

from itertools import pairwise

import pytest

from rota_sidecar.core.ledger.commit_points import (
    GROUP,
    GROUP_MAX,
    SINGLES,
    CommitMetadata,
    CommitPoint,
    PoisonRecordProbe,
    State,
    parse_commit_metadata,
)
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules, Verdict
from tests.sidecar.core.ledger.steps import (
    BY_KEY,
    IN_ORDER,
    UNORDERED,
    ack,
    awaits,
    batch,
    commit,
    listed,
    opened,
    read,
    retry,
    take,
    wants_alone,
)

ALL = pytest.mark.parametrize("rules", [IN_ORDER, BY_KEY, UNORDERED], ids=["in order", "by key", "unordered"])
DEAD_LETTERS = Rules(retries=1, has_dead_letters=True)


@pytest.mark.parametrize("state", list(State))
def test_a_mark_is_read_as_it_was_written(state: State) -> None:
    commit_metadata = CommitMetadata(state, 3, 14)
    assert parse_commit_metadata(commit_metadata.metadata) == commit_metadata


@pytest.mark.parametrize(
    "metadata", ["", "mine", "rota:2:0:0:open", "rota:1:0:0:open ", "rota:1:-1:0:open", "rota:1:0:0:"]
)
def test_what_others_wrote_says_nothing(metadata: str) -> None:
    assert parse_commit_metadata(metadata) == CommitMetadata()


@ALL
def test_a_tenure_that_was_cut_off_is_gone_on_with_one_by_one(rules: Rules) -> None:
    ledger = Ledger(0, rules, CommitMetadata(State.OPEN))
    read(ledger, batch(0, 3))
    for offset in range(3):
        assert take(ledger) == []
        assert awaits(ledger)
        assert commit(ledger) == CommitPoint(offset, "rota:1:0:0:one")
        assert not awaits(ledger)
        assert take(ledger) == [offset]
        assert take(ledger) == []
        ack(ledger, offset)


def test_an_older_commit_is_not_what_is_waited_for() -> None:
    ledger = Ledger(0, IN_ORDER, CommitMetadata(State.OPEN))
    read(ledger, batch(0, 3))
    before = ledger.point
    take(ledger)
    ledger.committed(before)
    assert take(ledger) == []
    assert awaits(ledger)


def test_what_is_over_is_taken_back_at_once() -> None:
    ledger = Ledger(0, IN_ORDER, CommitMetadata(State.OPEN))
    read(ledger, batch(0, 1))
    take(ledger)
    commit(ledger)
    take(ledger)
    retry(ledger, 0)
    assert awaits(ledger)
    assert ledger.point == CommitPoint(0, "rota:1:1:0:open")


def test_a_record_that_was_not_handed_out_is_not_announced() -> None:
    ledger = Ledger(0, IN_ORDER, CommitMetadata(State.OPEN))
    read(ledger, batch(0, 3))
    assert ledger.point == CommitPoint(0, "rota:1:0:0:open")
    assert take(ledger, 0) == []
    assert take(ledger, lanes=0) == []
    assert ledger.point == CommitPoint(0, "rota:1:0:0:open")


def test_only_who_went_out_by_itself_is_charged_with_the_cut_off() -> None:
    assert Ledger(7, IN_ORDER, CommitMetadata(State.OPEN, 1, 2)).point == CommitPoint(7, "rota:1:1:2:open")
    assert Ledger(7, IN_ORDER, CommitMetadata(State.ONE, 1, 2)).point == CommitPoint(7, "rota:1:1:3:open")


def test_a_record_that_kills_its_pod_each_time_reaches_its_limit() -> None:
    point, deaths = CommitPoint(5, ""), 0
    while True:
        ledger = Ledger(point.offset, DEAD_LETTERS, parse_commit_metadata(point.metadata))
        ledger.committed(ledger.point)
        read(ledger, batch(5, 3))
        if dead_letters := ledger.dead_letters():
            break
        dispatch_position = take(ledger, alone=True)
        point = commit(ledger)
        assert (dispatch_position or take(ledger, alone=True))[0] == 5
        deaths += 1
    # In company, twice by itself, and once alone.
    assert deaths == 4
    assert [(dead_letter.offset, dead_letter.deliveries) for dead_letter in dead_letters] == [(5, 3)]


def test_who_is_to_be_alone_is_announced_so_and_that_is_taken_back_when_it_is_not() -> None:
    ledger = Ledger(0, DEAD_LETTERS, CommitMetadata(State.ONE, 0, 1))
    read(ledger, batch(0, 2))
    assert wants_alone(ledger)
    assert take(ledger) == []
    assert take(ledger, alone=True) == []
    assert commit(ledger) == CommitPoint(0, "rota:1:0:2:alone")
    # Something else was handed out elsewhere meanwhile.
    assert take(ledger) == []
    assert awaits(ledger)
    assert commit(ledger) == CommitPoint(0, "rota:1:0:2:open")
    assert take(ledger, alone=True) == []
    commit(ledger)
    assert listed(ledger.take(9, 9, 0, alone=True)) == [(0, 3)]


def test_after_a_crash_alone_the_dead_letter_is_due_as_soon_as_the_record_is_read() -> None:
    ledger = Ledger(0, DEAD_LETTERS, CommitMetadata(State.ALONE, 0, 1))
    assert ledger.dead_letters() == ()
    read(ledger, batch(0, 2))
    assert [dead_letter.offset for dead_letter in ledger.dead_letters()] == [0]


def test_each_dispatch_limit_is_further_until_there_is_none() -> None:
    probe = PoisonRecordProbe()
    probe.begin(0)
    low, rounds = 0, []
    while (dispatch_limit := probe.dispatch_limit(low)) is not None:
        rounds.append(dispatch_limit - low)
        low = dispatch_limit
    sizes = [size for size in rounds if size > 1]
    assert rounds[:SINGLES] == [1] * SINGLES
    assert sizes[0] == GROUP
    assert all(following == 2 * size for size, following in pairwise(sizes))
    assert sizes[-1] <= GROUP_MAX < 2 * sizes[-1]


def test_a_round_begins_when_the_one_before_is_done_and_committed() -> None:
    ledger = Ledger(0, IN_ORDER, CommitMetadata(State.OPEN))
    read(ledger, batch(0, 1000))
    for _ in range(SINGLES):
        take(ledger)
        commit(ledger)
        ack(ledger, *take(ledger))
    assert take(ledger) == []
    assert commit(ledger) == CommitPoint(SINGLES, "rota:1:0:0:open")
    first = SINGLES
    assert take(ledger, 30) == [*range(first, first + 30)]
    assert take(ledger) == [*range(first + 30, first + GROUP)]
    ledger.judge(first, first + GROUP - 2, Verdict.ACK, 0)
    commit(ledger)
    assert take(ledger) == []
    ack(ledger, first + GROUP - 1)
    assert take(ledger) == []
    commit(ledger)
    assert len(take(ledger)) == 2 * GROUP


def test_without_metadata_the_probe_waits_for_no_commit() -> None:
    ledger = Ledger(0, IN_ORDER, None)
    read(ledger, batch(0, 5))
    take(ledger)
    ledger.application_gone(0, clean=False)
    assert take(ledger) == [0]
    assert take(ledger) == []
    ack(ledger, 0)
    assert take(ledger) == [1]


def test_a_clean_tenure_is_not_cautious() -> None:
    assert take(opened(IN_ORDER, batch(0, 50), commit_metadata=CommitMetadata(State.CLEAN, 1, 1))) == [
        *range(50)
    ]
