"""Command line of the Job. Read by `__main__` for each of the operator's commands, so nothing that is slow to load is imported here."""

import argparse
from dataclasses import dataclass

DESCRIPTION = "Issues certificates for Rota's servers into Secrets that exist, and renews those that expire. The chart runs it as a Job."
LOG_FORMATS = ("auto", "json", "text")
DAYS, DAYS_MAX = 90, 825


@dataclass(frozen=True, slots=True)
class ServerSecret:
    """The Secret of a server."""

    name: str
    # DNS names, the first of which is the certificate's subject.
    dns_names: tuple[str, ...]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("--namespace", required=True, metavar="NAME", help="namespace of the Secrets")
    parser.add_argument(
        "--authority", required=True, metavar="SECRET", help="Secret of the certificate authority"
    )
    parser.add_argument(
        "--certificate",
        action="append",
        required=True,
        type=server_secret,
        metavar="SECRET=NAME,…",
        help="Secret of a server, and the DNS names of its certificate; repeatable",
    )
    parser.add_argument(
        "--days",
        type=int,
        default=DAYS,
        metavar="N",
        help=f"days for which a certificate is valid, {DAYS_MAX} at most (default: {DAYS})",
    )
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="credentials of the API server; without it, those of the pod's service account",
    )
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="auto",
        help="auto: text on a terminal, otherwise json (default: auto)",
    )


def server_secret(text: str) -> ServerSecret:
    """Parse the value of --certificate."""
    name, _, dns_names = text.partition("=")
    found = tuple(filter(None, dns_names.split(",")))
    if not name or not found:
        raise argparse.ArgumentTypeError(
            f'"{text}": expected SECRET=NAME,…, for example rota-operator-tls=rota-operator.rota'
        )
    return ServerSecret(name, found)


def flags_error(options: argparse.Namespace) -> str:
    """Return the error message for invalid flags; empty when they are valid."""
    if not 1 <= options.days <= DAYS_MAX:
        return f"--days must be from 1 to {DAYS_MAX}, not {options.days}"
    return ""
