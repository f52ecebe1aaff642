"""The command line of the coordinator: its flags, their variables, and what is refused before anything starts."""

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version

from rota_coordinator.core.group.config import MEMBERS_MAX, MINUTE_MS, GroupConfig
from rota_coordinator.core.quotas import QUOTAS, UNLIMITED, Quota
from rota_coordinator.runtime import failpoints
from rota_coordinator.security.limits import BadLimit, Limits, limit_names, parse_limits
from rota_coordinator.store.port import LEASE_MS_MAX
from rota_service.addresses import is_loopback_host

LOG_FORMATS = ("auto", "json", "text")
STORES = ("sqlite:", "postgresql://")
SWITCH = {"true": True, "1": True, "false": False, "0": False}
# In a PostgreSQL URL: before the host, where a slash ends the search as it does for libpq, or as a parameter.
PASSWORD = re.compile(r"postgres(?:ql)?://(?:[^/@]*:[^/@]*@|.*[?&]\w*password=)", re.IGNORECASE)
# The flags of the groups, named as Kafka's settings where it has them.
GROUP_FLAGS = {
    "session_timeout_ms_min": (
        "group-min-session-timeout-ms",
        "the shortest session that a member may ask for",
    ),
    "session_timeout_ms_max": (
        "group-max-session-timeout-ms",
        "the longest session that a member may ask for",
    ),
    "initial_rebalance_delay_ms": (
        "group-initial-rebalance-delay-ms",
        "how long an empty group waits for more members after the first",
    ),
    "rebalance_coalesce_ms": (
        "rebalance-coalesce-ms",
        "how long a rebalance stays open at least, and a silent member may still come back",
    ),
    "members_max": ("group-max-size", "the most members of a group"),
    "new_member_join_timeout_ms": (
        "new-member-join-timeout-ms",
        "how long a new member waits for its first round",
    ),
    "offset_metadata_length_max": (
        "offset-metadata-max-length",
        "the longest text beside a committed offset",
    ),
    "offsets_retention_ms": ("offsets-retention-ms", "how long offsets of a group without members are kept"),
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; a variable ROTA_<FLAG> is its flag's default."""
    parser = argparse.ArgumentParser(
        prog="rota-coordinator",
        description="The group coordinator. Each flag can be given as a variable too: ROTA_STORE for --store.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-coordinator')}")
    parser.add_argument(
        "--store",
        default="sqlite:.rota/coordinator.db",
        help="sqlite:PATH for one process, postgresql://… for several",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:7070", metavar="HOST:PORT", help="port 0: any free one"
    )
    parser.add_argument(
        "--advertise", default="", metavar="HOST:PORT", help="what members dial, if not --listen"
    )
    parser.add_argument(
        "--http-listen",
        default="127.0.0.1:7071",
        metavar="HOST:PORT",
        help="where /livez, /readyz and /metrics are, as plain HTTP",
    )
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="auto", help="auto: text on a terminal, else json"
    )
    add_topics(parser)
    add_security(parser)
    add_quotas(parser)
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
        help="how often to look for offsets to expire",
    )
    parser.add_argument(
        "--slot-lease-ms",
        type=int,
        default=3_000,
        metavar="N",
        help=f"on PostgreSQL: how long after its last word a process still owns its slots, {LEASE_MS_MAX} at most",
    )
    parser.add_argument(
        "--print-schema",
        default="",
        metavar="ROLE",
        help="print the SQL with which an administrator of PostgreSQL makes the tables for this role, and exit",
    )
    parser.add_argument(
        "--failpoints", type=failpoint_names, default="", metavar="NAME,…", help="for tests: where to hold"
    )
    for action in parser._actions:  # argparse has no public list of its flags
        variable = "ROTA_" + action.option_strings[0].removeprefix("--").replace("-", "_").upper()
        if action.dest not in ("help", "version", "insecure") and variable in os.environ:
            action.default = os.environ[variable]
    options = parser.parse_args(arguments)
    if options.log is None:
        options.log = options.store.startswith("sqlite:")
    options.log = SWITCH.get(str(options.log).lower(), options.log)
    return options


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Whether records are kept, and what is done with them."""
    parser.add_argument(
        "--log",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep topics and their records too; on SQLite that is so when nobody says otherwise",
    )
    parser.add_argument(
        "--log-retention-check-interval-ms",
        type=int,
        default=MINUTE_MS,
        metavar="N",
        help="how often to look for records that are too old, or too many",
    )


def add_security(parser: argparse.ArgumentParser) -> None:
    """Who may speak to the coordinator, and how."""
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond loopback, to anybody, without TLS if need be; reach PostgreSQL on another machine unverified",
    )
    parser.add_argument(
        "--limits",
        type=limits,
        default="",
        metavar="NAME=N,…",
        help="bounds on connections and calls, where they should not be the defaults: "
        + ", ".join(limit_names()),
    )
    for flag, meaning in (
        ("tls-cert", "the server's certificate, and those above it; read again when it changes"),
        ("tls-key", "the key of that certificate"),
        ("tls-client-ca", "clients need a certificate of this authority"),
        ("tokens-file", "who there is, how each is recognized, and which groups each may touch"),
    ):
        parser.add_argument(f"--{flag}", default="", metavar="PEM" if "tls" in flag else "FILE", help=meaning)


def add_quotas(parser: argparse.ArgumentParser) -> None:
    """How much each principal may use; the tokens file may say otherwise for one of them."""
    for field, default in Quota()._asdict().items():
        name, what = QUOTAS[field]
        parser.add_argument(
            f"--quota-{name}",
            type=int,
            default=default,
            metavar="N",
            help=f"the most {what} of one principal; {UNLIMITED}: any number",
        )


def quota_of(options: argparse.Namespace) -> Quota:
    """The quota of a principal for which the tokens file names no other."""
    return Quota(**{field: getattr(options, f"quota_{field}") for field in Quota._fields})


def quota_error(options: argparse.Namespace) -> str:
    """What is wrong with the quotas; empty when nothing is."""
    below = [field for field, quota in quota_of(options)._asdict().items() if quota < UNLIMITED]
    return f"--quota-{QUOTAS[below[0]][0]}: give a number, or {UNLIMITED} for no quota" if below else ""


def limits(text: str) -> Limits:
    """Parse the value of `--limits`."""
    try:
        return parse_limits(text)
    except BadLimit as bad:
        raise argparse.ArgumentTypeError(str(bad)) from bad


def failpoint_names(text: str) -> tuple[str, ...]:
    """The names of a list."""
    names = tuple(filter(None, text.split(",")))
    unknown = set(names) - set(failpoints.NAMES)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: known are {', '.join(failpoints.NAMES)}"
        )
    return names


def option_error(options: argparse.Namespace) -> str:
    """What is wrong with the options, in one sentence; empty when nothing is."""
    if not options.store.startswith(STORES) or options.store in STORES:
        return "--store: give sqlite:PATH or postgresql://USER@HOST/DATABASE"
    if not isinstance(options.log, bool):
        return f"ROTA_LOG is {options.log}: give true or false"
    if options.log and not options.store.startswith("sqlite:"):
        return "--log is for SQLite: on PostgreSQL several coordinators share the groups, and Kafka keeps the records"
    for flag, address in (("--listen", options.listen), ("--http-listen", options.http_listen)):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            return f"{flag} {address}: give HOST:PORT, for example 127.0.0.1:7070"
    if options.slot_lease_ms > LEASE_MS_MAX:
        return f"--slot-lease-ms {options.slot_lease_ms}: a lease is {LEASE_MS_MAX} ms at most"
    if options.members_max > MEMBERS_MAX:
        return f"--group-max-size {options.members_max}: a group has at most {MEMBERS_MAX} members"
    return quota_error(options) or security_error(options, options.listen.rpartition(":")[0])


def security_error(options: argparse.Namespace, host: str) -> str:
    """What is missing before others may be let in; the default is to let nobody in."""
    if bool(options.tls_cert) != bool(options.tls_key):
        missing = "--tls-key" if options.tls_cert else "--tls-cert"
        return f"{missing} is missing: TLS needs a certificate and its key"
    if options.tls_client_ca and not options.tls_cert:
        return "--tls-client-ca asks for certificates of clients, which needs --tls-cert and --tls-key"
    if options.insecure or is_loopback_host(host):
        return ""
    if not options.tls_cert:
        return f"--listen {options.listen} is not loopback: add --tls-cert and --tls-key, or --insecure if you mean it"
    if not options.tokens_file and not options.tls_client_ca:
        return (
            f"--listen {options.listen} is not loopback, and anybody could do anything there: "
            "add --tokens-file or --tls-client-ca, or --insecure if you mean it"
        )
    return ""


def secret_in(arguments: Sequence[str]) -> str:
    """Why the arguments may not be used: everybody on a machine can read them. Empty when they hold no secret."""
    if any(PASSWORD.search(argument) for argument in arguments):
        return (
            "--store holds a password, and everybody on this machine can read arguments; "
            "give it as ROTA_STORE, or the password as PGPASSWORD or in a passfile"
        )
    return ""
