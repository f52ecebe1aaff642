"""Loopback addresses: those that leave credentials on this machine."""

import pytest

from rota_service.addresses import is_loopback, is_loopback_host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"])
def test_loopback_hosts_are_known(host: str) -> None:
    assert is_loopback_host(host)
    assert is_loopback(f"{host}:7070")


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.1.2.3", "localhost.", "Localhost.example", "127.1"]
)
def test_other_hosts_are_not(host: str) -> None:
    assert not is_loopback_host(host)
    assert not is_loopback(f"{host}:7070")


def test_an_address_without_a_port_is_not_loopback() -> None:
    assert not is_loopback("localhost")
    assert not is_loopback("127.0.0.1")
