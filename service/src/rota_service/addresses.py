"""Addresses to listen on and to dial: which of them only this machine reaches. Called before credentials or bytes leave."""

import ipaddress


class BindError(Exception):
    """An address is taken, or is not this process's to listen on; the message names it and what to do."""


def is_loopback_host(host: str) -> bool:
    """Return whether a host, an IPv6 address with or without brackets, is localhost or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_loopback(address: str) -> bool:
    """Return whether the host of HOST:PORT is localhost or a loopback address; without a port it is not."""
    return is_loopback_host(address.rpartition(":")[0].strip("[]"))
