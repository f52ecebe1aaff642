"""Every state of a partition meets every event, and does what the page says."""

from typing import get_args

from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import states
from tests.sidecar.core.delivery import table


def test_each_state_meets_each_event_and_does_what_the_page_says() -> None:
    assert table.page() == table.PAGE.read_text(), (
        "see that each change is meant, then: python -m tests.sidecar.core.delivery.table"
    )


def test_no_state_and_no_event_is_left_out() -> None:
    assert {type(table.state_of(prepare())) for prepare in table.STATES.values()} == set(
        get_args(states.State)
    )
    driven = table.running()
    assert {type(make(driven)) for make in table.EVENTS.values()} == set(get_args(on.Event))
