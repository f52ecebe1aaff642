"""Parse and validate the coordinator's flags and environment variables. Called by `__main__` before the start."""

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version

from rota_coordinator.core.group.config import MEMBERS_MAX, MINUTE_MS, GroupConfig
from rota_coordinator.core.quotas import QUOTAS, UNLIMITED, Quota
from rota_coordinator.core.slots.table import SLOTS, SLOTS_MAX
from rota_coordinator.runtime import failpoints
from rota_coordinator.security.limits import BadLimit, Limits, limit_names, parse_limits
from rota_coordinator.store.port import LEASE_MS_MAX
from rota_service.addresses import is_loopback_host

SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
LOG_FORMATS = ("auto", "json", "text")
STORES = ("sqlite:", "postgresql://")
SWITCH = {"true": True, "1": True, "false": False, "0": False}
# A password in a PostgreSQL URL: before the host, up to the first slash as in libpq, or as a parameter.
PASSWORD = re.compile(r"postgres(?:ql)?://(?:[^/@]*:[^/@]*@|.*[?&]\w*password=)", re.IGNORECASE)
# Flags of groups, with the names of Kafka's settings where Kafka has them.
GROUP_FLAGS = {
    "session_timeout_ms_min": (
        "group-min-session-timeout-ms",
        "minimum session timeout that a member may request",
    ),
    "session_timeout_ms_max": (
        "group-max-session-timeout-ms",
        "maximum session timeout that a member may request",
    ),
    "initial_rebalance_delay_ms": (
        "group-initial-rebalance-delay-ms",
        "time an empty group waits for further members after the first join",
    ),
    "rebalance_coalesce_ms": (
        "rebalance-coalesce-ms",
        "minimum duration of a rebalance, and grace period after a session timeout",
    ),
    "members_max": ("group-max-size", "maximum number of members in a group"),
    "new_member_join_timeout_ms": (
        "new-member-join-timeout-ms",
        "time after which a new member that is still waiting for its first rebalance is removed",
    ),
    "offset_metadata_length_max": (
        "offset-metadata-max-length",
        "maximum length of the metadata of a committed offset, in UTF-16 code units",
    ),
    "offsets_retention_ms": ("offsets-retention-ms", "retention of the committed offsets of an empty group"),
    "commit_timeout_ms": (
        "offsets-commit-timeout-ms",
        "time after which a commit that is not durable yet is answered with REQUEST_TIMED_OUT; it may still become durable",
    ),
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments; the environment variable ROTA_<FLAG> sets the default of a flag. Exits on invalid values."""
    parser = argparse.ArgumentParser(
        prog="rota-coordinator",
        description="The group coordinator. Each flag can also be set as an environment variable: ROTA_STORE for --store.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-coordinator')}")
    parser.add_argument(
        "--store",
        default="sqlite:.rota/coordinator.db",
        help="sqlite:PATH for a single process, postgresql://… for several",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:7070",
        metavar="HOST:PORT",
        help="address for gRPC; port 0 selects a free port",
    )
    parser.add_argument(
        "--advertise",
        default="",
        metavar="HOST:PORT",
        help="address that members connect to, if it differs from --listen",
    )
    parser.add_argument(
        "--http-listen",
        default="127.0.0.1:7071",
        metavar="HOST:PORT",
        help="address for /livez, /readyz and /metrics, plain HTTP",
    )
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="auto", help="auto: text on a terminal, otherwise json"
    )
    add_topics(parser)
    add_security(parser)
    add_quotas(parser)
    add_groups(parser)
    parser.add_argument(
        "--slot-lease-ms",
        type=int,
        default=3_000,
        metavar="N",
        help=f"PostgreSQL only: a process that has not renewed its lease for this long loses its slots; at most {LEASE_MS_MAX}",
    )
    add_commands(parser)
    parser.add_argument(
        "--failpoints",
        type=failpoint_names,
        default="",
        metavar="NAME,…",
        help="tests only: points at which the process halts",
    )
    for action in parser._actions:  # argparse has no public list of flags
        variable = "ROTA_" + action.option_strings[0].removeprefix("--").replace("-", "_").upper()
        if (
            action.dest not in ("help", "version", "insecure", "backup", "restored")
            and variable in os.environ
        ):
            action.default = os.environ[variable]
    options = parser.parse_args(arguments)
    if options.log is None:
        options.log = options.store.startswith("sqlite:")
    options.log = SWITCH.get(str(options.log).lower(), options.log)
    options.token_review = SWITCH.get(str(options.token_review).lower(), options.token_review)
    return options


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Add the flags of groups and of the retention of their offsets."""
    for field in fields(GroupConfig):
        flag, meaning = GROUP_FLAGS[field.name]
        parser.add_argument(
            f"--{flag}", dest=field.name, type=int, default=field.default, metavar="N", help=meaning
        )
    parser.add_argument(
        "--offsets-check-interval-ms",
        type=int,
        default=10 * MINUTE_MS,
        metavar="N",
        help="interval between checks for expired offsets",
    )
    parser.add_argument(
        "--slots",
        type=int,
        metavar="N",
        help=f"number of slots that groups are distributed over, of a new store: {SLOTS} if omitted, at most {SLOTS_MAX}; "
        "a store keeps its number, and starts with another one are rejected",
    )


def slots_error(options: argparse.Namespace) -> str:
    """Return the error message for a number of slots beyond its limits; empty when it is valid."""
    if options.slots is None or 1 <= options.slots <= SLOTS_MAX:
        return ""
    return f"--slots must be between 1 and {SLOTS_MAX}, not {options.slots}"


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the flags with which the process does one thing and exits."""
    parser.add_argument(
        "--print-schema",
        default="",
        metavar="ROLE",
        help="print the SQL with which a PostgreSQL administrator creates the tables for this role, and exit",
    )
    parser.add_argument(
        "--backup",
        default="",
        metavar="FILE",
        help="copy the SQLite file of --store to FILE while a coordinator serves from it, and exit",
    )
    parser.add_argument(
        "--restored",
        action="store_true",
        help="prepare --store, which was restored from a backup: groups begin a new incarnation without members; and exit",
    )


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Add the flags of topics and records."""
    parser.add_argument(
        "--log",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="also serve topics and their records; the default with a SQLite store",
    )
    parser.add_argument(
        "--log-retention-check-interval-ms",
        type=int,
        default=MINUTE_MS,
        metavar="N",
        help="interval between checks for records beyond their retention, and for logs to compact",
    )
    parser.add_argument(
        "--log-min-compaction-lag-ms",
        type=int,
        default=MINUTE_MS,
        metavar="N",
        help="age from which records are compacted, in topics with the cleanup policy compact",
    )


def add_security(parser: argparse.ArgumentParser) -> None:
    """Add the flags of authentication, TLS and limits."""
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow listening beyond loopback without TLS or authentication, and an unverified connection to PostgreSQL on another host",
    )
    parser.add_argument(
        "--limits",
        type=limits,
        default="",
        metavar="NAME=N,…",
        help="limits on connections and calls that override the defaults: " + ", ".join(limit_names()),
    )
    parser.add_argument(
        "--token-review",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="authenticate pods by their service account tokens, through the API server of the cluster that this process runs in",
    )
    parser.add_argument(
        "--service-account-folder",
        default=SERVICE_ACCOUNT_FOLDER,
        metavar="FOLDER",
        help="token and ca.crt of this pod's service account, for --token-review",
    )
    for flag, meaning in (
        ("tls-cert", "server certificate chain; reloaded when the file changes"),
        ("tls-key", "private key of the server certificate"),
        ("tls-client-ca", "certificate authority that client certificates must be issued by"),
        ("tokens-file", "principals with their credentials, grants and quotas"),
    ):
        parser.add_argument(f"--{flag}", default="", metavar="PEM" if "tls" in flag else "FILE", help=meaning)


def add_quotas(parser: argparse.ArgumentParser) -> None:
    """Add the quota flags; the tokens file may override them for a principal."""
    for field, default in Quota()._asdict().items():
        name, what = QUOTAS[field]
        parser.add_argument(
            f"--quota-{name}",
            type=int,
            default=default,
            metavar="N",
            help=f"maximum number of {what} per principal; {UNLIMITED}: no limit",
        )


def quota_of(options: argparse.Namespace) -> Quota:
    """Return the quota of principals without quota in the tokens file."""
    return Quota(**{field: getattr(options, f"quota_{field}") for field in Quota._fields})


def quota_error(options: argparse.Namespace) -> str:
    """Return the error message for invalid quotas; empty when they are valid."""
    below = [field for field, quota in quota_of(options)._asdict().items() if quota < UNLIMITED]
    return f"--quota-{QUOTAS[below[0]][0]} must be at least 0, or {UNLIMITED} for no quota" if below else ""


def limits(text: str) -> Limits:
    """Parse the value of `--limits`."""
    try:
        return parse_limits(text)
    except BadLimit as bad:
        raise argparse.ArgumentTypeError(str(bad)) from bad


def failpoint_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of failpoints."""
    names = tuple(filter(None, text.split(",")))
    unknown = set(names) - set(failpoints.NAMES)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: expected one of {', '.join(failpoints.NAMES)}"
        )
    return names


def option_error(options: argparse.Namespace) -> str:
    """Return the error message for invalid options; empty when they are valid."""
    if not options.store.startswith(STORES) or options.store in STORES:
        return "--store must be sqlite:PATH or postgresql://USER@HOST/DATABASE"
    for variable, switch in (("ROTA_LOG", options.log), ("ROTA_TOKEN_REVIEW", options.token_review)):
        if not isinstance(switch, bool):
            return f'{variable} must be true or false, not "{switch}"'
    if options.log and not options.store.startswith("sqlite:"):
        return "--log requires a SQLite store; with PostgreSQL, keep the records in Kafka"
    for flag, address in (("--listen", options.listen), ("--http-listen", options.http_listen)):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            return f'{flag} must be HOST:PORT, for example 127.0.0.1:7070, not "{address}"'
    return (
        backup_error(options)
        or limit_error(options)
        or slots_error(options)
        or quota_error(options)
        or security_error(options, options.listen.rpartition(":")[0])
    )


def backup_error(options: argparse.Namespace) -> str:
    """Return the error message for flags of backup and restore that do not fit; empty when they do."""
    if options.backup and not options.store.startswith("sqlite:"):
        return "--backup copies a SQLite store; back up PostgreSQL with pg_dump"
    if options.backup and options.restored:
        return "--backup and --restored exclude each other; run one after the other"
    return ""


def limit_error(options: argparse.Namespace) -> str:
    """Return the error message for numbers beyond their limits; empty when they are valid."""
    if options.slot_lease_ms > LEASE_MS_MAX:
        return f"--slot-lease-ms must be at most {LEASE_MS_MAX}, not {options.slot_lease_ms}"
    if options.members_max > MEMBERS_MAX:
        return f"--group-max-size must be at most {MEMBERS_MAX}, not {options.members_max}"
    if options.commit_timeout_ms < 1:
        return f"--offsets-commit-timeout-ms must be at least 1, not {options.commit_timeout_ms}"
    return ""


def security_error(options: argparse.Namespace, host: str) -> str:
    """Return the error message for listening beyond loopback without TLS or authentication; empty when allowed."""
    if bool(options.tls_cert) != bool(options.tls_key):
        missing = "--tls-key" if options.tls_cert else "--tls-cert"
        return f"{missing} is missing; TLS requires a certificate and its key"
    if options.tls_client_ca and not options.tls_cert:
        return "--tls-client-ca requires --tls-cert and --tls-key"
    if options.insecure or is_loopback_host(host):
        return ""
    if not options.tls_cert:
        return f"--listen {options.listen} is not loopback; add --tls-cert and --tls-key, or --insecure to allow it"
    if not (options.token_review or options.tokens_file or options.tls_client_ca):
        return (
            f"--listen {options.listen} is not loopback and clients are not authenticated; "
            "add --token-review, --tokens-file or --tls-client-ca, or --insecure to allow it"
        )
    return ""


def secret_in(arguments: Sequence[str]) -> str:
    """Return the error message for a password in the arguments, which all users of the machine can read; else empty."""
    if any(PASSWORD.search(argument) for argument in arguments):
        return (
            "--store contains a password, and arguments are visible to every user of this machine; "
            "set ROTA_STORE instead, or give the password as PGPASSWORD or in a passfile"
        )
    return ""
