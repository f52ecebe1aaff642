"""`kubectl rota groups upgrade` owns one field of the spec, and overrides no other manager of it."""

from collections.abc import Callable
from typing import Any

from tests.cli.kubectl.api_server import Answer, Sent, refusal
from tests.cli.kubectl.conftest import Kubectl, Serve
from tests.cli.kubectl.resources import NAME, PATH, answering, group, not_found

IMAGE = "registry.example/rota-sidecar:0.2.0"
UPGRADE = ("groups", "upgrade", NAME, "--image", IMAGE)
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "orders"}


def patching(answer: Answer, image: str = "") -> Callable[[Sent], Any]:
    """Answer the read of a group with this image in its spec, and its patch."""
    read = answering(group(scaleTargetRef=TARGET, sidecar={"image": image}))
    return lambda sent: answer if sent.method == "PATCH" else read(sent)


def test_the_image_is_applied_to_the_group_that_was_read(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(patching(Answer(200, group())))
    done = kubectl(*UPGRADE)
    assert done.stdout == (
        f"shop/orders-enricher: sidecar image registry.example/rota-sidecar:0.1.0 → {IMAGE}\n"
    )
    assert done.stderr == (
        "the operator replaces the pods by one rollout: follow it with `kubectl rollout status deployment/orders -n shop`\n"
    )
    sent = server.sent[-1]
    assert (sent.method, sent.path, sent.content_type) == (
        "PATCH",
        f"{PATH}/{NAME}",
        "application/apply-patch+yaml",
    )
    assert sent.body["spec"] == {"sidecar": {"image": IMAGE}}
    # Deleted and created again meanwhile: it is another group, which is left alone.
    assert sent.body["metadata"]["uid"] == "u-1"


def test_the_empty_default_that_the_creator_owns_is_overridden_unless_it_was_set_meanwhile(
    serve: Serve, kubectl: Kubectl
) -> None:
    server = serve(patching(Answer(200, group())))
    assert kubectl(*UPGRADE).code == 0
    assert server.sent[-1].query == {"fieldManager": "kubectl-rota", "force": "true"}
    assert server.sent[-1].body["metadata"]["resourceVersion"] == "100"


def test_an_image_that_was_set_is_not_overridden(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(patching(Answer(200, group()), image="registry.example/rota-sidecar:0.1.0"))
    assert kubectl(*UPGRADE).code == 0
    assert server.sent[-1].query == {"fieldManager": "kubectl-rota", "force": "false"}
    # The operator may write the status meanwhile.
    assert "resourceVersion" not in server.sent[-1].body["metadata"]


def test_a_dry_run_changes_nothing(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(patching(Answer(200, group())))
    assert kubectl(*UPGRADE, "--dry-run").stderr == "dry run: nothing was changed\n"
    assert server.sent[-1].query["dryRun"] == "All"


def test_an_upgrade_is_for_programs_too(serve: Serve, kubectl: Kubectl) -> None:
    serve(patching(Answer(200, group())))
    assert kubectl(*UPGRADE, "-o", "json").data == {
        "name": NAME,
        "namespace": "shop",
        "former_image": "registry.example/rota-sidecar:0.1.0",
        "image": IMAGE,
        "dry_run": False,
    }


def test_an_image_that_another_manager_has_set_is_changed_there(serve: Serve, kubectl: Kubectl) -> None:
    cause = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "argocd" using rota.dev/v1alpha1',
        "field": ".spec.sidecar.image",
    }
    serve(patching(refusal(409, "Apply failed with 1 conflict", causes=[cause]), image="other:1"))
    done = kubectl(*UPGRADE)
    assert (done.code, done.error) == (
        1,
        "spec.sidecar.image of consumergroup shop/orders-enricher is managed by argocd: change it there, for example in the manifest that is applied",
    )


def test_a_group_that_was_replaced_meanwhile_is_left_alone(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(patching(refusal(409, "uid mismatch")))
    assert kubectl(*UPGRADE).error == (
        f"consumergroup shop/orders-enricher at {server.address} was changed meanwhile: run the command again"
    )


def test_a_value_that_the_schema_refuses_is_refused_with_the_servers_message(
    serve: Serve, kubectl: Kubectl
) -> None:
    server = serve(patching(refusal(422, "spec.sidecar.image: Invalid value.")))
    assert kubectl(*UPGRADE).error == (
        f"{server.address} rejects the patch of consumergroup shop/orders-enricher: spec.sidecar.image: Invalid value"
    )


def test_a_group_that_does_not_exist_is_not_created(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(not_found)
    assert kubectl(*UPGRADE).code == 4
    assert [each.method for each in server.sent] == ["GET"]


def test_an_image_has_to_be_given(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group()))
    done = kubectl("groups", "upgrade", NAME)
    assert (done.code, done.error) == (
        2,
        "Missing option '--image': see `kubectl rota groups upgrade --help`",
    )
