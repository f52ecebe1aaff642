"""The proxy of the API server notices a write that rests on an older state than it has served."""

import json
from typing import Any

import pytest

from tests.support.cluster import served_versions
from tests.support.cluster.served_versions import ServedVersions

pytestmark = pytest.mark.unit
RESOURCE = "deployments/orders"


def body(version: int | None = None, **more: object) -> bytes:
    metadata: dict[str, Any] = {"name": "orders", "namespace": "shop"}
    if version is not None:
        metadata["resourceVersion"] = str(version)
    return json.dumps({"metadata": metadata, **more}).encode()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> ServedVersions:
    """Versions whose responses never overtake each other."""
    monkeypatch.setattr(served_versions, "SETTLED_S", -1.0)
    return ServedVersions()


def test_a_write_on_the_newest_version_that_was_served_is_no_offence(served: ServedVersions) -> None:
    served.served("deployments", body(9))
    served.served("deployments", body(10))
    served.written("shop", RESOURCE, body(10))
    served.written("shop", f"{RESOURCE}/status", body(8))
    assert served.outdated == []


@pytest.mark.parametrize(
    "newer",
    [
        body(10),
        json.dumps({"items": [json.loads(body(10))]}).encode(),
        json.dumps({"type": "MODIFIED", "object": json.loads(body(10))}).encode(),
    ],
    ids=["read", "list", "watch"],
)
def test_a_write_on_an_older_version_is_one_however_the_newer_was_served(
    served: ServedVersions, newer: bytes
) -> None:
    served.served("deployments", newer)
    served.served("deployments", body(9))
    served.written("other", RESOURCE, body(9))
    assert served.outdated == []
    served.written("shop", RESOURCE, body(9))
    assert served.outdated == ["shop/deployments/orders: 9, although 10 was read"]


def test_a_decision_may_take_some_time_after_its_read_and_not_more(
    served: ServedVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.served("deployments", body(9))
    monkeypatch.setattr(served_versions, "SETTLED_S", 60.0)
    served.served("deployments", body(10))
    served.written("shop", RESOURCE, body(9))
    assert served.outdated == []
    monkeypatch.setattr(served_versions, "DECIDED_S", -1.0)
    served.written("shop", RESOURCE, body(9))
    assert len(served.outdated) == 1


def test_a_write_without_a_version_that_returns_to_a_former_value_is_found(served: ServedVersions) -> None:
    for replicas in (0, 3, 3):
        served.written("shop", f"{RESOURCE}/scale", body(spec={"replicas": replicas}))
    assert served.returns("shop") == []
    served.written("shop", f"{RESOURCE}/scale", body(spec={"replicas": 0}))
    assert len(served.returns("shop")) == 1
    assert served.returns("other") == []
