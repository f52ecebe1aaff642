"""Every state of a member meets every event, and does what the page says."""

from typing import get_args

from rota_coordinator.core.group.state import State
from rota_coordinator.runtime.replicated_state import SlotState
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member import states as st
from tests.sidecar.core.member import design_names, table


def test_each_state_meets_each_event_and_does_what_the_page_says() -> None:
    assert table.page() == table.PAGE.read_text(), (
        "see that each change is meant, then: python -m tests.sidecar.core.member.table"
    )


def test_no_state_and_no_event_is_left_out() -> None:
    assert table.kinds_of_states() == set(get_args(st.State))
    driven = table.stable()
    assert {type(make(driven)) for make in table.EVENTS.values()} == set(get_args(on.Event))


def test_every_state_of_slots_groups_and_members_has_its_name_in_the_design() -> None:
    for names, states in (
        (design_names.SLOT, [each.value for each in SlotState]),
        (design_names.GROUP, [each.value for each in State]),
        (design_names.MEMBER, [each.__name__ for each in get_args(st.State)]),
    ):
        assert sorted(state for each in names for state in each.states) == sorted(states)
