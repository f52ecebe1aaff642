"""Each application in each state has its next step, whatever else goes on; scaling and rollouts end, one drained application at a time."""

import itertools
from dataclasses import replace

import pytest

from rota_operator.reconcile.observed import DrainProgress
from rota_operator.reconcile.spark.kinds import Stage
from rota_operator.reconcile.spark.steps import (
    APPLICATIONS_MAX,
    SETTLED,
    Create,
    Delete,
    Drain,
    Driver,
    SeenApplication,
    Step,
    Steps,
    next_steps,
    wanted_count,
)
from rota_operator.spec.workload import Spark

ORDERED, DRAINED = DrainProgress(is_over=False), DrainProgress(is_over=True)
FAILED = DrainProgress(is_over=True, problem="3 records are still in flight")
# What is known of a driver, and the next step towards an application that is gone.
DRIVERS: dict[str, tuple[Driver | None, list[type[Step]]]] = {
    "no driver": (None, [Delete]),
    "not drained": (Driver("d", "u"), [Drain]),
    "drains": (Driver("d", "u", ORDERED), []),
    "drained": (Driver("d", "u", DRAINED), [Delete]),
    "drain failed": (Driver("d", "u", FAILED), [Delete]),
    "not ready": (Driver("d", "u", is_ready=False), [Drain]),
}


def seen(number: int, stage: Stage = Stage.RUNNING, **more: object) -> SeenApplication:
    return replace(SeenApplication(number, stage, driver=Driver(f"d-{number}", f"u-{number}")), **more)  # type: ignore[arg-type]


def kinds(found: Steps) -> list[type[Step]]:
    return [type(each) for each in found.steps]


@pytest.mark.parametrize(
    ("partitions", "per", "existing", "expected"),
    [
        (0, 12, 3, 0), (1, 12, 0, 1), (12, 12, 0, 1), (13, 12, 0, 2), (24, 12, 0, 2), (25, 12, 9, 3), (5, 1, 0, 5),
        (None, 12, 0, 1), (None, 12, 3, 3), (100_000, 1, 0, APPLICATIONS_MAX),
    ],
)  # fmt: skip
def test_partitions_make_applications(partitions: int | None, per: int, existing: int, expected: int) -> None:
    spark = Spark.model_validate({"partitionsPerApplication": per})
    assert wanted_count(partitions, spark, existing) == expected


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("known", DRIVERS)
@pytest.mark.parametrize("is_leaving", [False, True])
@pytest.mark.parametrize("is_current", [False, True])
@pytest.mark.parametrize("is_surplus", [False, True])
def test_each_state_of_an_application_has_its_step(
    stage: Stage, known: str, *, is_leaving: bool, is_current: bool, is_surplus: bool
) -> None:
    driver, removal = DRIVERS[known]
    one = SeenApplication(0, stage, is_current, is_leaving, driver)
    found = next_steps(0 if is_surplus else 1, [one])
    if is_leaving:
        expected: list[type[Step]] = []
    elif is_surplus or not is_current:
        expected = removal
    else:
        expected = []
    assert kinds(found) == expected
    assert found == next_steps(0 if is_surplus else 1, [one])
    assert found.outdated == ((0,) if not is_surplus and not is_current and not is_leaving else ())


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("known", DRIVERS)
@pytest.mark.parametrize("is_leaving", [False, True])
@pytest.mark.parametrize("is_current", [False, True])
def test_a_rollout_waits_for_each_application_that_is_not_settled(
    stage: Stage, known: str, *, is_leaving: bool, is_current: bool
) -> None:
    """Beside an outdated application that runs: whether it is replaced now."""
    other = SeenApplication(0, stage, is_current, is_leaving, DRIVERS[known][0])
    found = next_steps(2, [other, seen(1, is_current=False)])
    has_begun = known not in ("no driver", "not ready") if stage is Stage.RUNNING else stage in SETTLED
    waits = is_leaving or (is_current and not has_begun)
    assert (found.waits_for == 0) is waits
    if waits:
        assert found.steps == ()
    elif is_current:
        assert found.steps == (Drain(1, Driver("d-1", "u-1")),)
    else:
        assert kinds(found) == DRIVERS[known][1]
        assert {each.number for each in found.steps} <= {0}


def test_missing_applications_are_created_before_anything_is_replaced() -> None:
    found = next_steps(4, [seen(1, is_current=False), seen(3)])
    assert found == Steps((Create(0), Create(2)), outdated=(1,))


def test_all_surplus_applications_go_at_once_and_a_rollout_waits_for_it() -> None:
    found = next_steps(
        1, [seen(0, is_current=False), seen(1), seen(2, driver=None), seen(3, is_leaving=True)]
    )
    assert found == Steps((Drain(1, Driver("d-1", "u-1")), Delete(2)), outdated=(0,))


def test_those_that_do_not_run_are_replaced_first() -> None:
    """A template that is corrected reaches the application that it broke, before it costs another one."""
    broken = seen(2, Stage.FAILED, is_current=False, driver=None)
    found = next_steps(3, [seen(0, is_current=False), seen(1, is_current=False), broken])
    assert found.steps == (Delete(2),)
    # One that drains already goes on.
    draining = seen(1, is_current=False, driver=Driver("d-1", "u-1", DRAINED))
    found = next_steps(3, [seen(0, is_current=False), draining, broken])
    assert found.steps == (Delete(1),)


def test_a_failed_drain_is_reported_and_delays_nothing() -> None:
    found = next_steps(0, [seen(0, driver=Driver("d-0", "u-0", FAILED))])
    assert found.steps == (Delete(0, "3 records are still in flight"),)


class SparkOperator:
    """Applications that do as they are told: performs the steps, and lets drivers drain, end and start."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.found: dict[int, SeenApplication] = {}
        self.log: list[Step] = []

    def run(self, *, broken: bool = False) -> None:
        """Until nothing changes any more."""
        for _ in range(100):
            found = next_steps(self.wanted, list(self.found.values()))
            for each in found.steps:
                self._perform(each)
            moved = self._move(Stage.FAILED if broken else Stage.RUNNING)
            if not found.steps and not moved:
                return
        raise AssertionError("it does not come to rest")

    def change_template(self) -> None:
        self.found = {number: replace(each, is_current=False) for number, each in self.found.items()}

    def _perform(self, step: Step) -> None:
        self.log.append(step)
        match step:
            case Create(number):
                self.found[number] = SeenApplication(number, Stage.STARTING)
            case Drain(number, driver):
                self.found[number] = replace(self.found[number], driver=replace(driver, drain=ORDERED))
            case Delete(number):
                self.found[number] = replace(self.found[number], is_leaving=True)

    def _move(self, started: Stage) -> bool:
        before = dict(self.found)
        for number, each in before.items():
            if each.is_leaving:
                del self.found[number]
            elif each.stage is Stage.STARTING:
                driver = (
                    Driver(f"d-{number}", f"u-{number}", is_ready=False) if started is Stage.RUNNING else None
                )
                self.found[number] = replace(each, stage=started, driver=driver)
            elif each.driver is not None and not each.driver.is_ready:
                assert sum(other.is_leaving for other in before.values()) == 0, "the rollout waits"
                self.found[number] = replace(each, driver=replace(each.driver, is_ready=True))
            elif each.driver is not None and each.driver.drain == ORDERED:
                self.found[number] = replace(each, driver=replace(each.driver, drain=DRAINED))
        return self.found != before


@pytest.mark.parametrize(("before", "after"), list(itertools.product(range(5), repeat=2)))
def test_scaling_creates_at_once_and_deletes_what_is_drained(before: int, after: int) -> None:
    spark = SparkOperator(before)
    spark.run()
    assert spark.log == [Create(number) for number in range(before)]
    spark.wanted, spark.log = after, []
    spark.run()
    assert sorted(spark.found) == list(range(after))
    assert [each.number for each in spark.log if isinstance(each, Drain)] == list(range(after, before))
    assert {type(each) for each in spark.log} == ({Drain, Delete} if after < before else {Create} if after > before else set())  # fmt: skip


@pytest.mark.parametrize("count", range(1, 5))
def test_a_rollout_replaces_one_drained_application_after_the_other(count: int) -> None:
    spark = SparkOperator(count)
    spark.run()
    spark.change_template()
    spark.log = []
    spark.run()
    assert all(each.is_current for each in spark.found.values())
    named = [(type(each), each.number) for each in spark.log]
    assert named == [(step, number) for number in range(count) for step in (Drain, Delete, Create)]


def test_a_template_that_does_not_work_costs_one_application_and_a_corrected_one_mends_it() -> None:
    spark = SparkOperator(3)
    spark.run()
    spark.change_template()
    spark.run(broken=True)
    assert [spark.found[each].stage for each in range(3)] == [Stage.FAILED, Stage.RUNNING, Stage.RUNNING]
    assert next_steps(3, list(spark.found.values())) == Steps((), outdated=(1, 2), waits_for=0)
    spark.change_template()
    spark.run()
    assert {each.stage for each in spark.found.values()} == {Stage.RUNNING}
    assert all(each.is_current for each in spark.found.values())
