"""Secrets that pods lack, as the kubelet reports them in Events."""

from typing import Any

import pytest

from rota_operator.cluster.pending_pods import awaits_mount, missing_in

NAMED = (("username", "login"), ("password", "login"), ("ca.crt", "authority"))
PREFIX = 'MountVolume.SetUp failed for volume "rota-auth" : '


def event(message: str, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "message": message}


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        (f'{PREFIX}secret "login" not found', ["login"]),
        (f"{PREFIX}references non-existent secret key: password", ["login/password"]),
        (
            f'{PREFIX}[references non-existent secret key: username, secret "authority" not found]',
            ["authority", "login/username"],
        ),
        (f'{PREFIX}secret "of-another-version-of-the-spec" not found', []),
        ('MountVolume.SetUp failed for volume "app" : secret "login" not found', []),
        ("Unable to attach or mount volumes: unmounted volumes=[rota-auth]: context deadline exceeded", []),
    ],
)
def test_the_kubelets_message_names_secrets_and_keys(message: str, missing: list[str]) -> None:
    assert list(missing_in([event(message)], NAMED)) == missing


def test_the_last_attempt_counts_and_not_what_was_missing_before() -> None:
    first = event(f'{PREFIX}secret "login" not found', "99")
    second = event(f"{PREFIX}references non-existent secret key: password", "100")
    of_another_volume = event('MountVolume.SetUp failed for volume "app" : secret "app" not found', "101")
    for events in ([first, second, of_another_volume], [of_another_volume, second, first]):
        assert list(missing_in(events, NAMED)) == ["login/password"]


def test_a_key_that_several_secrets_are_to_have_is_named_with_each() -> None:
    named = (("value", "user"), ("value", "password"))
    events = [event(f"{PREFIX}references non-existent secret key: value")]
    assert list(missing_in(events, named)) == ["user/value", "password/value"]


@pytest.mark.parametrize(
    ("status", "awaits"),
    [
        ({"phase": "Pending"}, True),
        ({"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}, True),
        # Its image is pulled, or cannot be.
        ({"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}, False),
        ({"phase": "Running"}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_a_pod_awaits_secrets_until_its_volumes_are_mounted(status: dict[str, Any], awaits: bool) -> None:
    assert awaits_mount({"metadata": {}, "status": status}) is awaits


def test_a_pod_that_is_being_deleted_awaits_no_secret() -> None:
    pod = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Pending"}}
    assert not awaits_mount(pod)
