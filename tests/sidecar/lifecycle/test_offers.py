"""Strategies that a member offers while its group changes to another one: it always shares one with the members of before."""

import pytest

from rota_sidecar.lifecycle.member import offers_meanwhile


@pytest.mark.parametrize(
    ("wanted", "chosen", "offered", "expected"),
    [
        pytest.param(("range",), "sticky", ("sticky", "uniform"), ("range", "sticky"), id="in a group"),
        pytest.param(("range",), "", ("sticky", "uniform"), ("range", "sticky", "uniform"), id="joining"),
        pytest.param(("range", "sticky"), "", ("sticky",), ("range", "sticky"), id="joining, one stays"),
        pytest.param(("range",), "range", ("range", "sticky"), ("range",), id="changed"),
        pytest.param(("uniform",), "sticky", ("range", "sticky"), ("uniform", "sticky"), id="changed twice"),
    ],
)
def test_the_former_strategy_is_offered_until_the_group_has_chosen_a_wanted_one(
    wanted: tuple[str, ...], chosen: str, offered: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert offers_meanwhile(wanted, chosen, offered) == expected
