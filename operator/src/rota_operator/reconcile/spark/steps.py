"""
Decides the next step of a group's SparkApplications: of their number, and of the rollout of a changed template.

    wanted, not there     create
    surplus               drain -> delete
    of another template   drain -> delete -> create, one application at a time

An application is deleted only after its driver's sidecar has answered the drain: the batch in flight ends while its executors are there.
A drain that fails, or a driver without a sidecar, delays nothing: its records in flight are delivered again. A rollout waits while an
application of the new template has not run yet, so that a template that does not work costs one application and no more. It runs when its
driver's pod is ready: a Spark operator calls it running some ten seconds before its query is attached, or the program fails.

`next_steps` keeps nothing: it is asked again after each change of what is seen, and equal inputs give equal steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota_operator.reconcile.observed import DrainProgress
from rota_operator.reconcile.spark.kinds import Stage
from rota_operator.spec.workload import Spark

# Applications of one group; more partitions for each are asked for instead.
APPLICATIONS_MAX = 100
# An application of the new template that does not run stops no rollout in these.
SETTLED = (Stage.COMPLETED, Stage.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Driver:
    """The pod of a driver that runs."""

    pod: str
    uid: str
    # None: no drain is ordered.
    drain: DrainProgress | None = None
    # Its query is attached to the sidecar.
    is_ready: bool = True


@dataclass(frozen=True, slots=True)
class SeenApplication:
    """A SparkApplication of the group, as the cluster has it."""

    number: int
    stage: Stage
    # It is of the group's template as it is now.
    is_current: bool = True
    # It is being deleted; its pods may still run.
    is_leaving: bool = False
    # None: no driver's pod runs.
    driver: Driver | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Step: create the application of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Step: order the driver's sidecar to drain."""

    number: int
    driver: Driver


@dataclass(frozen=True, slots=True)
class Delete:
    """Step: delete the application, and wait until its pods are gone."""

    number: int
    # Why records may be delivered again; empty: they are not.
    problem: str = ""


Step = Create | Drain | Delete


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps to perform now, in order, and what goes on besides."""

    steps: tuple[Step, ...] = ()
    # Numbers of applications of another template, which are to be replaced.
    outdated: tuple[int, ...] = ()
    # Number of the application that the rollout waits for; None: it waits for none.
    waits_for: int | None = None


def wanted_count(partitions: int | None, spark: Spark, existing: int) -> int:
    """Return how many applications a group is to have; while its partitions are not known, those that it has, and one at least."""
    if partitions is None:
        return max(1, existing)
    return min(APPLICATIONS_MAX, spark.needed_applications(partitions))


def next_steps(wanted: int, applications: Sequence[SeenApplication]) -> Steps:
    """Return what to do now, with `wanted` applications to have."""
    kept = [each for each in applications if each.number < wanted]
    surplus = [each for each in applications if each.number >= wanted]
    missing = sorted(set(range(wanted)) - {each.number for each in kept})
    outdated = tuple(sorted(each.number for each in kept if not each.is_current and not each.is_leaving))
    steps: list[Step] = [Create(number) for number in missing]
    for each in surplus:
        steps += _removal(each)
    if surplus or missing or not outdated:
        return Steps(tuple(steps), outdated)
    blocking = next((each for each in kept if each.is_leaving or _is_unsettled(each)), None)
    if blocking is not None:
        return Steps((), outdated, blocking.number)
    return Steps(tuple(_removal(_next_outdated(kept))), outdated)


def _is_unsettled(application: SeenApplication) -> bool:
    """Return whether an application of the new template has not shown yet that the template works."""
    if not application.is_current:
        return False
    if application.stage is Stage.RUNNING:
        return application.driver is None or not application.driver.is_ready
    return application.stage not in SETTLED


def _next_outdated(kept: Sequence[SeenApplication]) -> SeenApplication:
    """Return the application to replace next: the one that drains already, then those that do not run, then by number."""
    return min(
        (each for each in kept if not each.is_current),
        key=lambda each: (
            each.driver is None or each.driver.drain is None,
            each.stage is Stage.RUNNING,
            each.number,
        ),
    )


def _removal(application: SeenApplication) -> Iterator[Step]:
    """Yield the next step towards an application that is gone."""
    driver = application.driver
    if application.is_leaving:
        return
    if driver is None:
        yield Delete(application.number)
    elif driver.drain is None:
        yield Drain(application.number, driver)
    elif driver.drain.is_over:
        yield Delete(application.number, driver.drain.problem)
