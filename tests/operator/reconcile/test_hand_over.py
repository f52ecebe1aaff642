"""The time that a pod has to hand over its partitions: drain, grace period and what sidecars can measure fit together."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from rota_operator.plan.supported import TIME_S_MAX
from rota_operator.reconcile.actions import Configure
from rota_operator.reconcile.adoption import AFTER_DRAIN_S
from rota_operator.reconcile.group import group_of
from rota_operator.reconcile.settings import settings_text
from rota_operator.spec.conditions import Reason
from rota_sidecar.config.loading import read_sources
from rota_sidecar.process.drain_requests import FOR_MS_MAX, request_of
from tests.operator.reconcile.worlds import ORDERS, World, resource, workload

Json = Any
# The kubelet's own constant, for a container that has no time left.
KILLED_AFTER_S = 2
TIMES: dict[str, tuple[Json, Json]] = {
    # By path: what the spec says with the longest time, and with one that is too long.
    "spec.sidecar.terminationDrainSeconds": (
        {"sidecar": {"terminationDrainSeconds": TIME_S_MAX}},
        {"sidecar": {"terminationDrainSeconds": TIME_S_MAX + 1}},
    ),
    "spec.membership.rebalanceTimeoutSeconds": (
        {"membership": {"rebalanceTimeoutSeconds": TIME_S_MAX}},
        {"membership": {"rebalanceTimeoutSeconds": TIME_S_MAX + 1}},
    ),
    "spec.membership.processingTimeoutSeconds": (
        {"membership": {"processingTimeoutSeconds": TIME_S_MAX}},
        {"membership": {"processingTimeoutSeconds": 2**31 - 1}},
    ),
    "spec.offsets.commit.intervalSeconds": (
        {"offsets": {"commit": {"intervalSeconds": TIME_S_MAX}}},
        {"offsets": {"commit": {"intervalSeconds": TIME_S_MAX + 1}}},
    ),
    "spec.delivery.timeout": ({"delivery": {"timeout": "PT596H"}}, {"delivery": {"timeout": "PT597H"}}),
    "spec.delivery.backoffDelay": (
        {"delivery": {"backoffDelay": f"PT{TIME_S_MAX}S"}},
        {"delivery": {"backoffDelay": "PT9999999H"}},
    ),
}


@pytest.mark.parametrize("path", TIMES)
def test_a_time_that_no_sidecar_can_measure_is_refused_with_its_path(path: str, tmp_path: Path) -> None:
    longest, too_long = TIMES[path]
    world = World(resource(**too_long))
    refusal = world.reconcile().refusal
    assert refusal is not None
    assert refusal.reason == Reason.INVALID_SPEC
    assert refusal.message.startswith(f"{path} must be from ")
    assert "initContainers" not in world.pod()
    assert starts(longest, tmp_path), "the limit is that of the sidecar"


@pytest.mark.parametrize("spec", [{"timeout": "PT0S"}, {"timeout": "PT"}, {"backoffDelay": "PT"}])
def test_a_duration_without_a_length_is_refused_before_a_sidecar_ends_for_it(
    spec: Json, tmp_path: Path
) -> None:
    world = World(resource(delivery=spec))
    refusal = world.reconcile().refusal
    assert refusal is not None
    assert refusal.message.startswith(f"spec.delivery.{next(iter(spec))} must be from ")
    assert starts({"delivery": {"timeout": "PT0.001S", "backoffDelay": "PT0S"}}, tmp_path)


def starts(spec: Json, folder: Path) -> bool:
    """Return whether a sidecar starts with this spec: it raises otherwise."""
    world = World(resource(**spec))
    world.reconcile()
    [sidecar] = world.pod()["initContainers"]
    file = folder / "settings.json"
    file.write_text(settings_text(group_of(resource(**spec)).spec))
    arguments = [
        each.replace("$(POD_NAME)", "orders-a").replace("/etc/rota/settings/settings.json", str(file))
        for each in sidecar["args"]
    ]
    variables = {"ROTA_DRAIN_SOCKET": "/var/lib/rota/drain.sock", "ROTA_RACK": "a"}
    return bool(read_sources(arguments, variables).config())


@pytest.mark.parametrize(
    ("drain_s", "grace_s"), [*itertools.product((1, 45, 300, TIME_S_MAX), (None, 1, 59, 60, 61, 3600))]
)
def test_a_pod_always_has_the_time_of_its_drain_and_of_what_follows_it(
    drain_s: int, grace_s: int | None
) -> None:
    own = {} if grace_s is None else {"terminationGracePeriodSeconds": grace_s}
    world = World(resource(sidecar={"terminationDrainSeconds": drain_s}))
    world.workloads[ORDERS] = type(world.workloads[ORDERS])(workload(**own))
    world.reconcile()
    has_s = world.pod().get("terminationGracePeriodSeconds", 30)
    assert has_s >= drain_s + AFTER_DRAIN_S
    assert has_s >= (grace_s or 0), "the owner's own time is never shortened"
    [sidecar] = world.pod()["initContainers"]
    [drain] = [each for each in sidecar["lifecycle"]["preStop"]["exec"]["command"] if "--for-ms=" in each]
    request = request_of(drain.removeprefix("--").replace("-", "_"))
    assert request.for_ms is not None
    assert request.for_ms >= min((has_s + KILLED_AFTER_S) * 1000, FOR_MS_MAX), "it does not resume before"


@pytest.mark.parametrize("drain_s", [1, 45, 300])
def test_a_member_that_is_scaled_away_drains_for_as_long_as_its_pod_terminates(drain_s: int) -> None:
    world = World(
        resource(replicas=3, membership={"static": True}, sidecar={"terminationDrainSeconds": drain_s})
    )
    [configure] = [each for each in world.reconcile().actions if isinstance(each, Configure)]
    assert configure.pool is not None
    assert configure.pool.termination_ms == (drain_s + AFTER_DRAIN_S) * 1000
