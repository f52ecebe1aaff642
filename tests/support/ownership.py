"""
Pytest's hooks that make every test and every fixture the owner of the processes that it starts: these end with it, and a
test that fails shows the last lines of its own.

What a test, and the fixtures that are made for it alone, leave behind is killed after the teardown of these fixtures; what a
fixture of a wider scope leaves behind, after its own teardown.
"""

from collections.abc import Generator, Iterator

import pytest

from tests.support.processes import Owner, current_owner, owned_by

# Each line begins with it.
MARK = "| "


@pytest.fixture(autouse=True)
def _processes_of_the_test() -> Iterator[None]:
    """Set up before all other fixtures of one test, and torn down after them."""
    owner = Owner()
    try:
        with owned_by(owner):
            yield
    finally:
        owner.end()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Own what a fixture of a wider scope starts while it is set up."""
    if request.scope == "function":
        return (yield)
    owner = Owner()
    # Finalizers run in reverse order: the fixture's own teardown comes first.
    fixturedef.addfinalizer(owner.end)
    with owned_by(owner):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last lines of the test's processes if it failed, since their logs may be out of reach."""
    report = yield
    if report.failed and (lines := current_owner().last_lines()):
        report.sections.append(("processes of the test", "\n".join(MARK + line for line in lines)))
    return report
