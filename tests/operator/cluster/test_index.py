"""The index of ConsumerGroups: which events matter, who claims the same, whose object carries a label."""

from typing import Any

from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.queues import Key
from rota_operator.reconcile.observed import WorkloadRef


def group(name: str, uid: str = "", target: str = "", **spec: Any) -> Any:  # noqa: ANN401  any field
    workload = {"scaleTargetRef": {"kind": "Deployment", "name": target}} if target else {}
    return {
        "metadata": {
            "namespace": "shop", "name": name, "uid": uid or f"uid-{name}", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1",
        },
        "spec": {"bootstrapServers": ["rota://b:7070", "rota://a:7070"], **workload, **spec},
        "status": {},
    }  # fmt: skip


def test_a_change_of_the_status_alone_asks_for_no_reconcile() -> None:
    index, body = ResourceIndex(), group("orders")
    assert index.update(body)
    assert not index.update({**body, "status": {"members": 1}})
    assert index.update({**body, "metadata": {**body["metadata"], "generation": 2}})


def test_deletion_finalizers_annotations_and_labels_ask_for_a_reconcile() -> None:
    for change in (
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"finalizers": ["rota.dev/release"]},
        {"annotations": {"a": "b"}},
        {"labels": {"a": "b"}},
    ):
        index, body = ResourceIndex(), group("orders")
        index.update(body)
        assert index.update({**body, "metadata": {**body["metadata"], **change}}), change


def test_a_version_that_a_reconcile_has_written_is_no_news_of_the_watch() -> None:
    index, body = ResourceIndex(), group("orders")
    written = {**body, "metadata": {**body["metadata"], "finalizers": ["rota.dev/release"]}}
    index.refresh(written)
    assert index.keys() == ()
    index.update(body)
    index.refresh(written)
    assert not index.update(written)


def test_a_version_that_claims_something_else_is_left_to_the_watch() -> None:
    index = ResourceIndex()
    index.update(group("orders", target="app"))
    moved = group("orders", target="other")
    moved["metadata"]["generation"] = 2
    index.refresh(moved)
    claim = index.claim(Key("shop", "orders"))
    assert claim is not None
    assert claim.target == WorkloadRef("Deployment", "app")
    assert index.update(moved)


def test_rivals_claim_the_same_workload_or_the_same_group_id() -> None:
    index = ResourceIndex()
    for each in (
        group("one", target="app"),
        group("two", target="app"),
        group("three", target="other", groupId="shop.one"),
        group("four", target="another"),
    ):
        index.update(each)
    own = index.claim(Key("shop", "one"))
    assert own is not None
    assert own.target == WorkloadRef("Deployment", "app")
    assert own.coordinator == ("a:7070", "b:7070")
    assert sorted(each.name for each in index.rivals(own)) == ["three", "two"]


def test_a_group_is_found_by_the_uid_that_its_objects_carry() -> None:
    index = ResourceIndex()
    index.update(group("orders", uid="u-1"))
    assert index.key_of_uid("u-1") == Key("shop", "orders")
    assert index.key_of_uid("u-2") is None


def test_a_group_that_was_created_again_under_its_name_replaces_the_old_one() -> None:
    index = ResourceIndex()
    old, new = group("orders", uid="u-1"), group("orders", uid="u-2")
    index.update(old)
    assert index.update(new)
    assert index.key_of_uid("u-1") is None
    index.remove(old)
    assert index.key_of_uid("u-2") == Key("shop", "orders")
    index.remove(new)
    assert index.keys() == ()


def test_an_older_body_changes_nothing_and_a_group_that_is_gone_claims_nothing() -> None:
    index, key = ResourceIndex(), Key("shop", "orders")
    new, old = group("orders", target="app"), group("orders", target="former")
    new["metadata"]["resourceVersion"] = "10"
    old["metadata"]["resourceVersion"] = "9"
    index.update(new)
    assert not index.update(old)
    claim = index.claim(key)
    assert claim is not None
    assert claim.target == WorkloadRef("Deployment", "app")
    assert index.drop(key) == claim
    assert index.drop(key) is None
    assert index.key_of_uid("uid-orders") is None
