"""Every case of the reference, on every coordinator."""

import asyncio

import pytest

from tests.conformance import cases_joining, cases_leaving, cases_offsets, cases_rounds
from tests.conformance.core import CoreDriver
from tests.conformance.registry import CASES, Case

SECTIONS = (cases_joining, cases_rounds, cases_leaving, cases_offsets)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: f"{case.id}-{case.rule}")


@every_case
def test_core(case: Case) -> None:
    driver = CoreDriver(case.settings)
    asyncio.run(case.body(driver))
