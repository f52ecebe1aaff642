"""Strategies that a member offers while its group changes to another one: it always shares one with the members of before."""

import pytest

from rota_sidecar.__main__ import offerable
from rota_sidecar.config.loading import read_sources
from rota_sidecar.lifecycle.member import offers_meanwhile
from rota_sidecar.membership.strategies import known


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


@pytest.mark.parametrize(
    ("names", "fleet", "expected"),
    [
        (("acme", "range"), "operator:7083", ("range",)),
        (("acme", "range"), "", ("acme", "range")),
        (("acme",), "operator:7083", ("acme",)),
        (("range", "sticky"), "operator:7083", ("range", "sticky")),
    ],
)
def test_a_sidecar_that_starts_during_a_change_to_a_strategy_it_lacks_joins_with_the_former_one(
    names: tuple[str, ...], fleet: str, expected: tuple[str, ...]
) -> None:
    arguments = [
        "--bootstrap-servers=rota://127.0.0.1:1", "--group-id=g", "--topics=t", f"--assignors={','.join(names)}", f"--fleet={fleet}"
    ]  # fmt: skip
    config = read_sources(arguments, {}).config()
    assert offerable(config, known(100)) == expected
