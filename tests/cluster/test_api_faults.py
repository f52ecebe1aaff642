"""The proxy of the API server disturbs each namespace by its fault alone, from the first request on that can meet it, until the end."""

import json

import pytest

from tests.support.cluster import api_faults
from tests.support.cluster.api_faults import GONE, ApiFaults, Fault
from tests.support.cluster.held_writes import HeldWrites

pytestmark = pytest.mark.unit
NAME = "configmaps/orders"
SEED, REQUESTS = 1, 200


@pytest.fixture
def faults() -> ApiFaults:
    """One namespace for each fault, of its name."""
    found = ApiFaults()
    found.begin(SEED, {fault: fault for fault in Fault})
    return found


def test_nothing_is_disturbed_before_the_beginning_and_after_the_end(faults: ApiFaults) -> None:
    faults.end()
    for each in (ApiFaults(), faults):
        disturbed = [each.is_watch_expired(), each.is_watch_ended(0.0), each.is_from_past("")]
        for namespace in Fault:
            disturbed += [each.hangs(namespace), each.is_from_past(namespace)]
            assert each.refusal(namespace, is_write=True) is None
        assert not any(disturbed)
        assert each.counts == {}


@pytest.mark.parametrize(
    ("fault", "status"), [(Fault.CONFLICTS, 409), (Fault.OVERLOAD, 429), (Fault.ERRORS, 500)]
)
def test_the_first_request_of_a_namespace_is_refused_and_others_by_chance(
    faults: ApiFaults, fault: Fault, status: int
) -> None:
    found = [faults.refusal(fault, is_write=True) for _ in range(REQUESTS)]
    assert found[0] is not None
    assert {each.status for each in found if each is not None} == {status}
    # The first burst of errors lasts longer than these requests.
    assert (None in found) == (fault is not Fault.ERRORS)
    assert faults.refusal("other", is_write=True) is None
    assert not faults.hangs(fault)
    assert faults.counts == {fault: len(found) - found.count(None)}


def test_reads_meet_no_conflict(faults: ApiFaults) -> None:
    assert not any(faults.refusal(Fault.CONFLICTS, is_write=False) for _ in range(REQUESTS))


def test_errors_come_in_bursts(faults: ApiFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_faults, "BURST_S", 1e-9)
    found = [faults.refusal(Fault.ERRORS, is_write=False) for _ in range(REQUESTS)]
    assert found[0] is not None
    assert None in found


def test_lists_and_watches_of_all_namespaces_meet_their_faults(faults: ApiFaults) -> None:
    assert faults.is_watch_expired()
    assert faults.is_watch_ended(0.0)
    assert faults.is_from_past("")
    assert faults.is_from_past(Fault.PAST)
    assert faults.hangs(Fault.HANGS)
    assert not any(faults.is_from_past(Fault.HANGS) or faults.hangs(Fault.PAST) for _ in range(REQUESTS))
    assert faults.counts == {GONE: 1, Fault.PAST: 2, Fault.HANGS: 1}


def test_a_write_is_held_back_by_its_object_and_its_body_until_it_is_released() -> None:
    held, body = HeldWrites(), json.dumps({"metadata": {"name": "orders"}, "data": {"a": "1"}}).encode()
    held.hold("shop", "PATCH", NAME, is_carried_out=True, matches=lambda sent: sent["data"] == {"a": "1"})
    held.hold("shop", "POST", NAME, is_carried_out=False)
    assert held.find("shop", "PATCH", NAME, body) is not None
    assert held.find("shop", "POST", "configmaps", body) is not None
    assert not held.are_reached()
    other = json.dumps({"metadata": {"name": "other"}, "data": {}}).encode()
    for namespace, method, resource, sent in (
        ("other", "PATCH", NAME, body),
        ("shop", "PUT", NAME, body),
        ("shop", "PATCH", "configmaps/other", body),
        ("shop", "PATCH", NAME, other),
        ("shop", "POST", "configmaps", other),
        ("shop", "POST", "events", body),
    ):
        assert held.find(namespace, method, resource, sent) is None, (namespace, method, resource)
    held.release()
    assert held.find("shop", "PATCH", NAME, body) is None
    assert held.are_reached()
