"""A template that cannot run, or that would give pods rights on their node, is refused in one sentence with the field's path."""

import copy
from typing import Any

import pytest

from rota_operator.reconcile.spark.kinds import APACHE, KINDS, KUBEFLOW
from rota_operator.reconcile.spark.rendering import rendering
from rota_operator.reconcile.spark.template import ACCOUNT_PROPERTIES, OWNED_PROPERTIES, template_error
from tests.operator.reconcile.spark.templates import TEMPLATES, template, wanted

BOTH = (KUBEFLOW, APACHE)
PRIVILEGED = {"securityContext": {"privileged": True}}


def message(api_version: str, given: Any) -> str:  # noqa: ANN401  a template, whatever it is
    found = template_error(given, KINDS[api_version], "shop")
    return "" if found is None else found.full_message


def with_driver(api_version: str, **pod: Any) -> Any:  # noqa: ANN401  a template
    """The template with a pod template of the driver."""
    part, name = KINDS[api_version].driver_template
    given = template(api_version)
    return {**given, part: {**given.get(part, {}), name: {"spec": pod}}}


def with_conf(api_version: str, **properties: str) -> Any:  # noqa: ANN401  a template
    given = template(api_version)
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return {**given, "sparkConf": {**given.get("sparkConf", {}), **named}}


def path(api_version: str, *names: str) -> str:
    return ".".join(("spec.spark.template.spec", *KINDS[api_version].driver_template, *names))


@pytest.mark.parametrize("api_version", BOTH)
def test_a_template_that_can_run_has_no_error(api_version: str) -> None:
    given = with_driver(
        api_version,
        containers=[{"name": "main", "env": [{"name": "A", "value": "1"}], "lifecycle": {}}],
        initContainers=[{"name": "fetch", "image": "fetch:1"}],
        volumes=[{"name": "data", "emptyDir": {}}],
        serviceAccountName="spark.drivers",
        securityContext={"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
        hostNetwork=False,
    )
    assert message(api_version, given) == ""
    assert message(api_version, template(api_version)) == ""


def test_driver_and_executors_need_an_image() -> None:
    required = "is required: the {} has no image; set it to an image with Spark and your code"
    given = template(KUBEFLOW, image=None)
    assert message(KUBEFLOW, given) == f"spec.spark.template.spec.image {required.format('driver')}"
    given["driver"]["image"] = "driver:1"
    assert message(KUBEFLOW, given) == f"spec.spark.template.spec.image {required.format('executor')}"
    given["executor"]["image"] = "executor:1"
    assert message(KUBEFLOW, given) == ""
    conf = {"spark.kubernetes.container.image": "shop-spark:1"}
    assert message(KUBEFLOW, template(KUBEFLOW, image=None, sparkConf=conf)) == ""
    # Spark asks for the property, whatever a pod template has.
    bare = with_driver(APACHE, containers=[{"name": "main", "image": "shop-spark:1"}])
    del bare["sparkConf"]
    assert message(APACHE, bare) == (
        f"spec.spark.template.spec.sparkConf.spark.kubernetes.container.image {required.format('driver')}"
    )
    each = {f"spark.kubernetes.{part}.container.image": "1" for part in ("driver", "executor")}
    assert message(APACHE, template(APACHE, sparkConf=each)) == ""


@pytest.mark.parametrize("api_version", BOTH)
def test_a_privileged_pod_is_refused_wherever_it_is_asked_for(api_version: str) -> None:
    true = "must not be true: pods of a group get no rights on their node; remove it"
    given = with_driver(api_version, containers=[{"name": "main"}, {"name": "second", **PRIVILEGED}])
    assert message(api_version, given) == (
        f"{path(api_version, 'spec', 'containers[1]', 'securityContext', 'privileged')} {true}"
    )
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        assert message(api_version, with_driver(api_version, **{field: True})) == (
            f"{path(api_version, 'spec', field)} {true}"
        )
    given = with_driver(api_version, initContainers=[{"name": "first", **PRIVILEGED}])
    assert message(api_version, given).endswith(f"initContainers[0].securityContext.privileged {true}")
    given = with_driver(api_version, volumes=[{"name": "node", "hostPath": {"path": "/"}}])
    assert message(api_version, given) == (
        f"{path(api_version, 'spec', 'volumes[0]', 'hostPath')} is not allowed: pods of a group get no rights on their node; "
        "use another volume"
    )
    added = {"name": "main", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
    assert ".capabilities.add is not allowed" in message(
        api_version, with_driver(api_version, containers=[added])
    )
    property_name = "spark__kubernetes__executor__volumes__hostPath__node__mount__path"
    assert "hostPath.node.mount.path is not allowed" in message(
        api_version, with_conf(api_version, **{property_name: "/"})
    )


def test_kubeflows_own_fields_of_pods_count_too() -> None:
    for part, fields in (
        ("executor", PRIVILEGED),
        ("driver", {"sidecars": [{"name": "second", **PRIVILEGED}]}),
        ("driver", {"initContainers": [{"name": "first", **PRIVILEGED}]}),
        ("driver", {"hostNetwork": True}),
    ):
        given = template(KUBEFLOW)
        given[part] |= fields
        assert message(KUBEFLOW, given).startswith(f"spec.spark.template.spec.{part}."), fields
        assert "must not be true" in message(KUBEFLOW, given)
    given = template(KUBEFLOW, volumes=[{"name": "node", "hostPath": {"path": "/"}}])
    assert message(KUBEFLOW, given).startswith("spec.spark.template.spec.volumes[0].hostPath is not allowed")


@pytest.mark.parametrize("api_version", BOTH)
@pytest.mark.parametrize("name", ["other/spark", "system:serviceaccount:other:spark", "", "Spark", 7, None])
def test_a_service_account_of_another_namespace_is_refused(api_version: str, name: object) -> None:
    expected = "must be the name of a service account in namespace shop, without the namespace"
    for field in ("serviceAccount", "serviceAccountName"):
        assert message(api_version, with_driver(api_version, **{field: name})) == (
            f"{path(api_version, 'spec', field)} {expected}"
        )
    for each in ACCOUNT_PROPERTIES:
        given = template(api_version)
        given.setdefault("sparkConf", {})[each] = name
        assert message(api_version, given) == f"spec.spark.template.spec.sparkConf.{each} {expected}"


@pytest.mark.parametrize("api_version", BOTH)
def test_drivers_run_in_the_namespace_of_their_group(api_version: str) -> None:
    assert message(api_version, with_conf(api_version, spark__kubernetes__namespace="shop")) == ""
    assert message(api_version, with_conf(api_version, spark__kubernetes__namespace="other")) == (
        "spec.spark.template.spec.sparkConf.spark.kubernetes.namespace must be shop, the ConsumerGroup's namespace: drivers do "
        "not run under service accounts of others"
    )


@pytest.mark.parametrize("api_version", BOTH)
def test_what_keeps_the_sidecar_out_is_refused(api_version: str) -> None:
    for each in OWNED_PROPERTIES:
        found = message(api_version, with_conf(api_version, **{each.replace(".", "__"): "x"}))
        assert found == (
            f"spec.spark.template.spec.sparkConf.{each} is set for each application by itself; remove it"
        )
    for field in ("containers", "initContainers"):
        found = message(api_version, with_driver(api_version, **{field: [{"name": "rota-sidecar"}]}))
        assert (
            found
            == f"{path(api_version, 'spec', field)}[0].name must not be rota-sidecar, the sidecar's name; rename it"
        )
    assert "must not begin with rota-" in message(
        api_version, with_driver(api_version, volumes=[{"name": "rota-app", "emptyDir": {}}])
    )


def test_a_driver_runs_in_a_pod_of_its_own() -> None:
    assert "spec.mode must not be client" in message(KUBEFLOW, template(KUBEFLOW, mode="client"))
    assert "spec.deploymentMode must not be ClientMode" in message(
        APACHE, template(APACHE, deploymentMode="ClientMode")
    )
    given = template(KUBEFLOW)
    given["driver"]["podName"] = "driver"
    assert "spec.driver.podName would be the name of several pods" in message(KUBEFLOW, given)
    assert "spec.sparkVersion must be 3.0.0 or newer" in message(KUBEFLOW, template(KUBEFLOW, sparkVersion="2.4.8"))  # fmt: skip
    for version in ("3.0.0", "10.0", "latest", "", 4, None):
        assert message(KUBEFLOW, {**template(KUBEFLOW), "sparkVersion": version}) == ""


@pytest.mark.parametrize("api_version", BOTH)
@pytest.mark.parametrize("wrong", [7, "x", True, ["x"], [{}], {"name": 7}, [{"name": 7}]])
def test_a_value_of_a_wrong_type_is_an_error_or_left_to_the_api_server(
    api_version: str, wrong: object
) -> None:
    """Every value of the template and of a pod template is replaced by one of another type; rendering meets none that it cannot take."""
    whole = with_driver(
        api_version,
        containers=[{"name": "main", "env": [], "volumeMounts": [], "lifecycle": {}}],
        initContainers=[],
        volumes=[],
        imagePullSecrets=[],
    )
    part, name = KINDS[api_version].driver_template
    whole[part][name]["metadata"] = {"labels": {}, "annotations": {}}
    whole.setdefault("sparkConf", {})
    for step_path in paths_in(whole):
        given = copy.deepcopy(whole)
        found = given
        for step in step_path[:-1]:
            found = found[step]
        found[step_path[-1]] = wrong
        if message(api_version, given) == "":
            assert rendering(wanted(api_version, given=given)).template_hash


def paths_in(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401  any part of a template
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for step, below in steps for each in ((*here, step), *paths_in(below, (*here, step)))]


def test_the_templates_are_those_of_both_kinds() -> None:
    assert TEMPLATES.keys() == KINDS.keys()
