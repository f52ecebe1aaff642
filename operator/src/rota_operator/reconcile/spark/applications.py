"""
Turns what is seen of a group's SparkApplications into actions, and into remarks for the group's condition.

Called by `reconcile.plan`: `spark_problem` first, then `applications`; `removal` for a group that is to have none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, assert_never

from rota_operator.reconcile.actions import Action, CreateApplication, DeleteApplication, DrainDriver
from rota_operator.reconcile.decision import Refusal, Remark
from rota_operator.reconcile.group import Group, Identity, identity_of
from rota_operator.reconcile.observed import Object, Observed, SparkObjects
from rota_operator.reconcile.sidecar import SidecarSpec
from rota_operator.reconcile.spark.kinds import KINDS, Stage, State, state_of
from rota_operator.reconcile.spark.rendering import (
    APPLICATION_LABEL,
    TEMPLATE_ANNOTATION,
    Rendering,
    application,
    application_name,
    rendering,
)
from rota_operator.reconcile.spark.steps import (
    APPLICATIONS_MAX,
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
from rota_operator.reconcile.spark.template import template_error
from rota_operator.spec.conditions import ConditionType, Reason
from rota_operator.spec.validation import spec_of
from rota_operator.spec.workload import Sidecar

# Spark operators append to an application's name, and the result is a label or a name of a Service.
NAME_LENGTH_MAX = 50
# Named in a message.
NAMED_MAX = 5


class Applications(NamedTuple):
    """The part of a plan that is about SparkApplications."""

    actions: tuple[Action, ...]
    remarks: tuple[Remark, ...]
    # How many there are to be.
    wanted: int


def spark_problem(observed: Observed, group: Group) -> Refusal | None:
    """Return why a group cannot have SparkApplications."""
    spark = group.spec.spark
    if not observed.settings.manages_spark:
        return Refusal(
            Reason.UNSUPPORTED_FIELD,
            "spec.spark.enabled needs an operator with rights on SparkApplications; set spark.enabled in the values of its chart",
        )
    if len(group.identity.name) > NAME_LENGTH_MAX:
        return Refusal(
            Reason.INVALID_SPEC,
            f"metadata.name must have at most {NAME_LENGTH_MAX} characters, because SparkApplications are named after it",
        )
    assert spark.template is not None, "an enabled group has a template"
    kind = KINDS[spark.api_version]
    if (error := template_error(spark.template.spec, kind, group.identity.namespace)) is not None:
        return Refusal(Reason.INVALID_SPEC, error.full_message)
    if not observed.spark.is_served:
        return Refusal(
            Reason.SPARK_NOT_INSTALLED,
            f"spec.spark.apiVersion: the API server does not serve SparkApplications of {kind.api_version}; install their "
            "Spark operator",
        )
    return None


def applications(observed: Observed, sidecar: SidecarSpec) -> Applications:
    """Decide for a group that has no problem."""
    group, spark = sidecar.group, observed.spark
    rendered = rendering(sidecar)
    found = own_applications(spark, group.identity)
    per = group.spec.spark.partitions_per_application
    wanted = wanted_count(spark.partitions, group.spec.spark, len(found))
    steps = next_steps(wanted, list(_seen(spark, found, rendered.template_hash)))
    drain_ms = group.spec.sidecar.termination_drain_seconds * 1000
    actions = [_action(each, found, sidecar, rendered, drain_ms) for each in steps.steps]
    remarks = (
        *_count_remarks(spark.partitions, per, wanted),
        *_state_remarks(found.values(), group),
        *_change_remarks(steps, found, wanted),
    )
    return Applications(tuple(actions), remarks, wanted)


def removal(observed: Observed) -> tuple[Action, ...]:
    """Return the actions towards a group without applications: each is drained, then deleted."""
    found = own_applications(observed.spark, identity_of(observed.resource))
    spec = spec_of(observed.resource)
    sidecar = Sidecar() if spec is None else spec.sidecar
    steps = next_steps(0, list(_seen(observed.spark, found, ""))).steps
    return tuple(
        _removal_action(each, found, sidecar.termination_drain_seconds * 1000)
        for each in steps
        if not isinstance(each, Create)
    )


def has_applications(observed: Observed) -> bool:
    """Return whether the operator has made applications for this ConsumerGroup that are not gone yet."""
    return bool(own_applications(observed.spark, identity_of(observed.resource)))


def own_applications(spark: SparkObjects, identity: Identity) -> Mapping[int, Object]:
    """Return the applications that the operator has made for this ConsumerGroup, by number."""
    found: dict[int, Object] = {}
    for each in spark.applications:
        metadata = each["metadata"]
        number = metadata["name"].removeprefix(f"{identity.name}-")
        owners = metadata.get("ownerReferences") or ()
        is_named = number.isdecimal() and metadata["name"] == application_name(identity.name, int(number))
        if is_named and any(owner.get("uid") == identity.uid for owner in owners):
            found[int(number)] = each
    return dict(sorted(found.items()))


def driver_of(spark: SparkObjects, name: str) -> Object | None:
    """Return the pod of an application's driver that runs, and is not being deleted."""
    return next(
        (
            each
            for each in spark.drivers
            if (each["metadata"].get("labels") or {}).get(APPLICATION_LABEL) == name
            and "deletionTimestamp" not in each["metadata"]
            and (each.get("status") or {}).get("phase") == "Running"
        ),
        None,
    )


def _seen(spark: SparkObjects, found: Mapping[int, Object], template_hash: str) -> Iterator[SeenApplication]:
    for number, each in found.items():
        metadata = each["metadata"]
        pod = driver_of(spark, metadata["name"])
        yield SeenApplication(
            number,
            state_of(each).stage,
            is_current=(metadata.get("annotations") or {}).get(TEMPLATE_ANNOTATION) == template_hash,
            is_leaving="deletionTimestamp" in metadata,
            driver=None if pod is None else _driver(spark, pod),
        )


def _driver(spark: SparkObjects, pod: Object) -> Driver:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    conditions = pod["status"].get("conditions") or ()
    is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    return Driver(name, uid, spark.drains.get(uid), is_ready)


def _action(
    step: Step, found: Mapping[int, Object], sidecar: SidecarSpec, rendered: Rendering, drain_ms: int
) -> Action:
    match step:
        case Create(number):
            name = application_name(sidecar.group.identity.name, number)
            return CreateApplication(application(sidecar, rendered, name))
        case Drain() | Delete():
            return _removal_action(step, found, drain_ms)
        case _:
            assert_never(step)


def _removal_action(step: Drain | Delete, found: Mapping[int, Object], drain_ms: int) -> Action:
    one = found[step.number]
    name = one["metadata"]["name"]
    match step:
        case Drain(_, driver):
            return DrainDriver(name, driver.pod, driver.uid, drain_ms)
        case Delete(_, problem):
            return DeleteApplication(one["apiVersion"], name, one["metadata"]["uid"], problem)
        case _:
            assert_never(step)


def _count_remarks(partitions: int | None, per: int, wanted: int) -> Iterator[Remark]:
    if partitions is None:
        yield Remark(
            ConditionType.READY,
            Reason.APPLICATION_COUNT,
            f"the number of partitions is not known yet, so the number of SparkApplications stays at {wanted}",
        )
    elif partitions > APPLICATIONS_MAX * per:
        yield Remark(
            ConditionType.READY,
            Reason.APPLICATION_COUNT,
            f"{partitions} partitions need more than {APPLICATIONS_MAX} SparkApplications, which is the maximum; raise "
            "spec.spark.partitionsPerApplication",
        )


def _state_remarks(found: Iterable[Object], group: Group) -> Iterator[Remark]:
    """Yield one remark with the applications that do not run."""
    texts = [text for each in found if (text := _state_text(each["metadata"]["name"], state_of(each), group))]
    if texts:
        more = f" (and {len(texts) - NAMED_MAX} more)" if len(texts) > NAMED_MAX else ""
        yield Remark(ConditionType.READY, Reason.APPLICATION_STATE, f"{', '.join(texts[:NAMED_MAX])}{more}")


def _state_text(name: str, state: State, group: Group) -> str:
    """Return the state of an application that does not run, and what to do; empty: it runs."""
    said = f"{name} is {state.name}{f' ({state.message})' if state.message else ''}"
    kind = KINDS[group.spec.spark.api_version]
    match state.stage:
        case Stage.RUNNING:
            return ""
        case Stage.STARTING if not state.name:
            return (
                f"{name} has no state yet: check that a Spark operator of {kind.api_version} watches namespace "
                f"{group.identity.namespace}"
            )
        case Stage.STARTING | Stage.RESTARTING | Stage.SUSPENDED:
            return said
        case Stage.COMPLETED:
            return f"{said}: to keep it running, set {kind.restart} in spec.spark.template.spec"
        case Stage.FAILED:
            return f"{said}: see the log of its driver, and correct spec.spark.template.spec"
        case Stage.UNKNOWN:
            return f"{said}, from which its stage is not known: see its Spark operator"
        case _:
            assert_never(state.stage)


def _change_remarks(steps: Steps, found: Mapping[int, Object], wanted: int) -> Iterator[Remark]:
    surplus = sum(number >= wanted for number in found)
    if surplus:
        yield Remark(
            ConditionType.READY,
            Reason.APPLICATIONS_CHANGING,
            f"{surplus} of {len(found)} SparkApplications are more than the partitions need; they are drained and deleted",
        )
    if steps.outdated:
        waited = None if steps.waits_for is None else found[steps.waits_for]["metadata"]["name"]
        yield Remark(
            ConditionType.READY,
            Reason.APPLICATIONS_CHANGING,
            f"{len(steps.outdated)} of {len(found)} SparkApplications have the former template; "
            + ("one after the other is replaced" if waited is None else f"waiting for {waited}"),
        )
