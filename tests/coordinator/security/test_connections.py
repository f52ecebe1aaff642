"""Which connections are closed, and which calls refused: one rule after the other, without a socket."""

from dataclasses import replace

import pytest

from rota_coordinator.security.connections import (
    MESSAGE_OVERHEAD_BYTES,
    UPKEEP_BYTES_PER_SECOND,
    ConnectionCounts,
    Connections,
    address_of,
)
from rota_coordinator.security.limits import BadLimit, Limits, limit_names, parse_limits

LIMITS = Limits(
    calls=6,
    calls_per_identity=4,
    connections_per_identity=3,
    strangers_per_address=2,
    stranger_seconds=10,
    failed_calls_per_second=5,
    unread_bytes_per_connection=100_000,
    unread_bytes=250_000,
)
ROOM = 1_000


def peer(port: int, host: str = "10.0.0.1") -> str:
    return f"ipv4:{host}:{port}"


def closed(
    connections: Connections, received: dict[str, int], now_s: float = 0, room: int = ROOM
) -> dict[str, str]:
    return dict(connections.observe(received, now_s, room))


def test_a_connection_without_an_admitted_call_is_closed_after_its_time_and_one_with_a_call_stays() -> None:
    connections = Connections(LIMITS)
    assert closed(connections, {peer(1): 0, peer(2): 0}) == {}
    assert connections.begin_call(peer(2), "orders", 1) == ""
    connections.end_call("orders")
    assert closed(connections, {peer(1): 0, peer(2): 0}, 9.9) == {}
    assert closed(connections, {peer(1): 0, peer(2): 0}, 10) == {
        peer(1): "no call on it was admitted within 10 s (limit stranger-seconds)"
    }
    assert connections.counts() == ConnectionCounts(admitted=1, strangers=1, closed=0)
    connections.connection_closed()
    assert connections.counts() == ConnectionCounts(admitted=1, strangers=1, closed=1)


def test_one_address_has_few_strangers_and_the_oldest_go_first() -> None:
    connections = Connections(LIMITS)
    closed(connections, {peer(3): 0}, 0)
    closed(connections, {peer(3): 0, peer(1): 0}, 1)
    others = {peer(1, "10.0.0.2"): 0, peer(2, "10.0.0.2"): 0}
    assert closed(connections, {peer(3): 0, peer(1): 0, peer(2): 0, **others}, 2) == {
        peer(3): "its address has more than 2 such connections (limit strangers-per-address)"
    }


def test_without_room_strangers_are_closed_oldest_first_and_admitted_connections_never() -> None:
    connections = Connections(LIMITS)
    for port in (1, 2):
        connections.begin_call(peer(port), "orders", port)
    received = dict.fromkeys([peer(1), peer(2), peer(3, "10.0.0.3"), peer(4, "10.0.0.4")], 0)
    found = closed(connections, received, 5, room=3)
    assert found == {
        peer(3, "10.0.0.3"): "file descriptors are running out, and no call on it was admitted yet"
    }
    assert closed(connections, received, 5, room=1).keys() == {peer(3, "10.0.0.3"), peer(4, "10.0.0.4")}


def test_of_strangers_of_the_same_age_those_that_have_sent_nothing_go_first() -> None:
    connections = Connections(LIMITS)
    received = {peer(1): 80, peer(2): 0, peer(3): 80}
    assert closed(connections, received).keys() == {peer(2)}


def test_the_strangers_of_one_address_do_not_use_up_the_room_of_another() -> None:
    connections = Connections(LIMITS)
    closed(connections, {peer(1, "10.0.0.2"): 0}, 0)
    flood = dict.fromkeys([peer(port) for port in range(1, 9)], 0)
    found = closed(connections, {peer(1, "10.0.0.2"): 0, **flood}, 1, room=3)
    assert found.keys() == {peer(port) for port in range(1, 7)}


def test_one_principal_has_half_of_the_file_descriptors_at_most() -> None:
    connections = Connections(LIMITS)
    closed(connections, {}, room=4)
    assert connections.begin_call(peer(1), "orders", 0) == ""
    assert connections.begin_call(peer(2), "orders", 0) == ""
    refusal = connections.begin_call(peer(3), "orders", 0)
    assert refusal.startswith(
        "orders has 2 connections, for which half of the process's file descriptors are used"
    )
    assert connections.begin_call(peer(3), "billing", 0) == ""


def test_calls_and_connections_of_a_principal_and_of_all_are_bounded_and_end() -> None:
    connections = Connections(LIMITS)
    for port in (1, 2, 3):
        assert connections.begin_call(peer(port), "orders", 0) == ""
    assert "limit connections-per-identity" in connections.begin_call(peer(4), "orders", 0)
    assert connections.begin_call(peer(1), "orders", 0) == ""
    assert "limit calls-per-identity" in connections.begin_call(peer(1), "orders", 0)
    for _ in range(2):
        assert connections.begin_call(peer(5), "billing", 0) == ""
    assert "(limit calls)" in connections.begin_call(peer(5), "billing", 0)
    connections.end_call("orders")
    assert connections.begin_call(peer(5), "billing", 0) == ""
    # A connection that was closed makes room for another one.
    closed(connections, {peer(2): 0, peer(3): 0, peer(5): 0})
    connections.end_call("orders")
    assert connections.begin_call(peer(4), "orders", 0) == ""


def test_bytes_without_a_message_count_and_messages_take_theirs_away() -> None:
    connections = Connections(LIMITS)
    connections.begin_call(peer(1), "orders", 0)
    assert closed(connections, {peer(1): 100_000}, 0) == {}
    connections.message_read(peer(1), 100_000 - MESSAGE_OVERHEAD_BYTES)
    assert closed(connections, {peer(1): 200_000}, 0) == {}
    # Of a message of nearly 100,000 bytes the wire has a hundredth more.
    found = closed(connections, {peer(1): 202_000}, 0)
    assert found[peer(1)] == (
        "101006 bytes of incomplete messages were received on it; at most 100000 are allowed (limit unread-bytes-per-connection)"
    )


def test_pings_and_window_updates_of_a_quiet_client_never_add_up() -> None:
    connections = Connections(LIMITS)
    connections.begin_call(peer(1), "orders", 0)
    for second in range(1_000):
        assert closed(connections, {peer(1): second * UPKEEP_BYTES_PER_SECOND}, second) == {}


def test_above_the_sum_of_all_connections_the_largest_are_closed_first() -> None:
    connections = Connections(LIMITS)
    received = {peer(port): 90_000 - port for port in (1, 2, 3)}
    for each in received:
        connections.begin_call(each, each, 0)
    assert closed(connections, received) == {
        peer(1): "89999 bytes of incomplete messages were received on it; "
        "at most 250000 are allowed on all connections (limit unread-bytes)"
    }


def test_a_connection_with_too_many_failed_calls_is_named_once_in_a_second() -> None:
    connections = Connections(LIMITS)
    found = [connections.call_failed(peer(1), 0.5) for _ in range(10)]
    assert [each is not None for each in found] == [False] * 5 + [True] + [False] * 4
    assert all(connections.call_failed(peer(1), 1.5) is None for _ in range(5))
    assert connections.call_failed(peer(1), 1.5) is not None


def test_another_connection_from_the_same_port_is_a_stranger_again() -> None:
    connections = Connections(LIMITS)
    connections.begin_call(peer(1), "orders", 0)
    closed(connections, {peer(1): 500})
    closed(connections, {peer(1): 20}, 1)
    assert connections.counts() == ConnectionCounts(admitted=0, strangers=1, closed=0)


def test_a_peer_has_its_address_without_the_port() -> None:
    assert address_of("ipv4:10.0.0.1:5000") == "ipv4:10.0.0.1"
    assert address_of("ipv6:%5B::1%5D:5000") == "ipv6:%5B::1%5D"


def test_limits_are_read_by_name_and_keep_their_defaults_otherwise() -> None:
    assert parse_limits("") == Limits()
    assert parse_limits(" calls=5, stranger-seconds=3 ") == replace(Limits(), calls=5, stranger_seconds=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed=1", f'unknown limit "speed"; expected one of {", ".join(limit_names())}'),
        ("calls", 'calls is ""; expected an integer of at least 1'),
        ("calls=0", 'calls is "0"; expected an integer of at least 1'),
        ("calls=-1", 'calls is "-1"; expected an integer of at least 1'),
        ("calls=٣", 'calls is "٣"; expected an integer of at least 1'),
    ],
)
def test_a_wrong_limit_is_refused_with_what_is_expected(text: str, message: str) -> None:
    with pytest.raises(BadLimit) as refused:
        parse_limits(text)
    assert str(refused.value) == message
