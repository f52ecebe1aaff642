"""A drain begins on the sidecar's private socket alone, ends by itself, and shows while it lasts."""

import http.client
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from rota_operator.local.table import display_state
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import ReplicaView, WorkloadView
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.lifecycle.drain_orders import DrainOrder, DrainOrders, OnExpiry, Source
from rota_sidecar.process.drain_requests import FOR_MS_MAX, DrainRequest, WrongRequest, request_of
from tests.support import web
from tests.support.coordinator import Coordinator, serving
from tests.support.sidecar import Deliverer, delivering

TOPIC = "orders"
process = pytest.mark.process


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        running.make_topic(TOPIC, 2)
        yield running


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory, coordinator: Coordinator) -> Iterator[Deliverer]:
    """One for all strangers; its page is open to other machines, as in a pod."""
    folder = tmp_path_factory.mktemp("sidecar")
    flags = (f"--topics={TOPIC}", "--http-listen=0.0.0.0:0")
    one = Deliverer(folder, f"rota://{coordinator.address}", "strangers", flags)
    with delivering(one):
        yield one


# -------------------------------------------------------------------------------- who may begin a drain


@process
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD"])
@pytest.mark.parametrize("host", ["10.1.2.3:7081", "127.0.0.1:7081", "evil.example"])
def test_no_request_to_the_page_begins_a_drain(sidecar: Deliverer, method: str, host: str) -> None:
    address = sidecar.http.replace("0.0.0.0", "127.0.0.1")
    with closing(http.client.HTTPConnection(address, timeout=10)) as connection:
        connection.request(method, "/drain", headers={"Host": host, "Origin": "http://evil.example"})
        assert connection.getresponse().status == HTTPStatus.NOT_FOUND
    assert not sidecar.has_said("draining")


@process
@pytest.mark.parametrize(
    ("method", "target", "headers", "status"),
    [
        ("GET", "/drain", {}, HTTPStatus.METHOD_NOT_ALLOWED),
        ("HEAD", "/drain", {}, HTTPStatus.METHOD_NOT_ALLOWED),
        ("POST", "/drain", {"Host": "evil.example"}, HTTPStatus.FORBIDDEN),
        ("POST", "/drain", {"Host": "127.0.0.1.evil.example:80"}, HTTPStatus.FORBIDDEN),
        ("POST", "/drain", {"Origin": "http://evil.example"}, HTTPStatus.FORBIDDEN),
        ("POST", "/drain", {"Origin": "null"}, HTTPStatus.FORBIDDEN),
        ("POST", "/drain?then=stop", {}, HTTPStatus.BAD_REQUEST),
        ("POST", "/drain?for_ms=-1", {}, HTTPStatus.BAD_REQUEST),
        ("POST", "/readyz", {}, HTTPStatus.NOT_FOUND),
    ],
)
def test_the_drain_socket_refuses_what_a_browser_could_send(
    sidecar: Deliverer, method: str, target: str, headers: dict[str, str], status: HTTPStatus
) -> None:
    assert web.post_on_socket(sidecar.drain_socket, target, headers, method).status == status
    assert not sidecar.has_said("draining")


@process
def test_the_drain_socket_is_for_this_user_alone(sidecar: Deliverer) -> None:
    assert stat.S_IMODE(sidecar.drain_socket.lstat().st_mode) == 0o600


# -------------------------------------------------------------------------------- how it ends


@process
def test_a_drain_that_is_not_followed_up_ends_by_itself(coordinator: Coordinator, tmp_path: Path) -> None:
    sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", "resuming", (f"--topics={TOPIC}",))
    with delivering(sidecar):
        assert sidecar.drain("for_ms=60000") == (HTTPStatus.OK, "drained")
        assert sidecar.unready_because.startswith(
            "drained: a drain was requested on the drain socket; the member resumes in "
        )
        assert sidecar.ask("/drained") == (HTTPStatus.OK, "drained")
        assert sidecar.drain("for_ms=1") == (HTTPStatus.OK, "drained")
        sidecar.wait_until(lambda: sidecar.has_said("undrained"))
        assert "drain" not in sidecar.unready_because
        assert sidecar.terminate() == 0


@process
def test_a_drain_that_ends_in_leaving_ends_the_member(coordinator: Coordinator, tmp_path: Path) -> None:
    sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", "leaving", (f"--topics={TOPIC}",))
    with delivering(sidecar):
        sidecar.wait_until(lambda: "no application is attached" in sidecar.unready_because)
        command = [sys.executable, "-m", "rota_sidecar", "drain", f"--drain-socket={sidecar.drain_socket}"]
        asked = ran([*command, "--then=leave", "--for-ms=60000"])
        assert (asked.returncode, asked.stdout, asked.stderr) == (0, "drained\n", "")
        assert "the member leaves the group in " in sidecar.unready_because
        assert coordinator.members_of("leaving") == 1
        # It may end before it has answered.
        with suppress(ConnectionError, http.client.HTTPException):
            sidecar.drain("then=leave&for_ms=1")
        assert sidecar.process.wait(within_s=60) == 0
        assert coordinator.members_of("leaving") == 0
        gone = ran(command)
        assert gone.returncode == 1
        assert "does not answer" in gone.stderr


def test_a_drained_member_shows_in_what_page_doctor_and_explain_read() -> None:
    overview = Overview("rota://127.0.0.1:7070", [("shop", "default/shop")])
    says = "drained: a drain was requested on the drain socket; the member resumes in 41 s unless its process ends first"
    member = pb.MemberReport(state=pb.MEMBER_STATE_STABLE, draining=True, problems=[says])
    overview.add_report(pb.SidecarReport(sidecar="shop-0", group_id="shop", member=member), 1_000)
    replicas = (ReplicaView("shop-0", "Running", "Running", 0),)
    workload = WorkloadView("default", "shop", "Deployment", "shop", 1, 1, 0, replicas)
    (shown,) = overview.view([workload], 1_001).groups[0].members
    assert (shown.state, shown.draining, shown.problems) == ("Stable", True, (says,))
    assert display_state(shown) == "Draining"


def ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_order_expires_unless_the_process_ends() -> None:
    orders = DrainOrders()
    assert orders.reason(0) == ""
    assert orders.give(Source.SOCKET, DrainOrder(1_000))
    due_ms = orders.next_expiry_ms
    assert due_ms == 1_000
    assert orders.expire(999) is None
    assert "the member resumes in 1 s" in orders.reason(999)
    assert orders.expire(1_000) is OnExpiry.RESUME
    assert orders.reason(1_000) == ""
    assert orders.next_expiry_ms is None
    orders.give(Source.SOCKET, DrainOrder(1_000))
    orders.give(Source.SIGNAL, DrainOrder(None))
    assert orders.next_expiry_ms is None
    assert orders.expire(10**9) is None
    assert orders.reason(10**9) == "the process is ending"


def test_a_drain_lasts_until_the_last_order_has_expired() -> None:
    orders = DrainOrders()
    orders.give(Source.SOCKET, DrainOrder(1_000))
    orders.give(Source.FLEET, DrainOrder(2_000))
    assert orders.leaves_for_good
    assert orders.expire(1_000) is None
    assert orders.reason(1_000).startswith("Fleet ordered a drain; the member resumes in 1 s")
    assert not orders.give(Source.FLEET, DrainOrder(3_000)), "it is renewed"
    assert orders.expire(2_000) is None
    assert orders.expire(3_000) is OnExpiry.RESUME
    assert not orders.leaves_for_good


def test_who_is_asked_to_leave_is_drained_until_the_process_has_ended() -> None:
    orders = DrainOrders()
    orders.give(Source.SOCKET, DrainOrder(1_000, OnExpiry.LEAVE))
    assert "the member leaves the group in 1 s" in orders.reason(0)
    assert orders.expire(1_000) is OnExpiry.LEAVE
    assert orders.leaves_for_good
    assert orders.reason(1_000)


def test_a_request_names_its_time_and_its_end() -> None:
    assert request_of("") == DrainRequest(None, OnExpiry.RESUME)
    assert request_of(f"for_ms={FOR_MS_MAX}&then=leave") == DrainRequest(FOR_MS_MAX, OnExpiry.LEAVE)


@pytest.mark.parametrize(
    "query",
    [
        "then=",
        "then=end",
        "for_ms=",
        "for_ms=0",
        "for_ms=1e3",
        "for_ms=²",
        f"for_ms={FOR_MS_MAX + 1}",
        "now=1",
    ],
)
def test_a_request_that_cannot_be_used_is_refused(query: str) -> None:
    with pytest.raises(WrongRequest, match="expected "):
        request_of(query)
