"""What options amount to."""

import argparse

from rota_sidecar.config.parsing import listed

ROTA_SCHEME = "rota://"


def speaks_rota(options: argparse.Namespace) -> bool:
    """Whether Rota keeps the records."""
    return all(address.startswith(ROTA_SCHEME) for address in listed(options.bootstrap_servers))


def is_coordinated_by_rota(options: argparse.Namespace) -> bool:
    """Whether Rota coordinates the group."""
    return bool(options.coordination == "rota" or (options.coordination == "auto" and speaks_rota(options)))


def rota_addresses(options: argparse.Namespace) -> list[str]:
    """Where Rota's servers are; none when everything is Kafka's."""
    if speaks_rota(options):
        return listed(options.bootstrap_servers)
    return listed(options.coordinator_address)


def has_tls(options: argparse.Namespace) -> bool:
    """Whether connections are encrypted."""
    return bool(options.tls or options.tls_ca or options.tls_cert or options.tls_key)
