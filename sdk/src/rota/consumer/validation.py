"""
Checks of the settings of a consumer's own sidecar, called by `Options`; each check yields the messages of its faults.

The sidecar checks its flags again. A value that it would refuse is refused here first, in the application's call.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points

from rota import errors, oauth, security
from rota.addresses import address_of, is_rota
from rota.connection import CREDENTIAL_VARIABLES
from rota.consumer.sidecar_options import KAFKA_ONLY, SidecarOptions
from rota.parameters import LABEL_LENGTH_MAX, is_label
from rota.security import CONSUMER_MECHANISMS, KERBEROS
from rota_service.addresses import is_loopback

INT32_MAX = 2**31 - 1
LENGTH_MAX = 249
PORT_MAX = 65_535
# Minimum number of heartbeats in a session.
HEARTBEATS_MIN = 3
SESSION_TIMEOUT_MS = 45_000
NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "load-aware-sticky")
PASSWORD_SETTINGS = ("sasl_username", "sasl_password")
KERBEROS_SETTINGS = ("sasl_kerberos_service_name", "sasl_kerberos_principal", "sasl_kerberos_keytab")
CHOICES: dict[str, tuple[str, ...]] = {
    "auto_offset_reset": ("earliest", "latest", "none"),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "coordination": ("auto", "rota", "kafka"),
    "sasl_mechanism": CONSUMER_MECHANISMS,
}
# Highest value of each number; the lowest is 1. Those of the sidecar's flags, and of librdkafka where it is lower.
HIGHEST: Mapping[str, int] = {
    "drain_timeout_ms": INT32_MAX,
    "auto_commit_interval_ms": INT32_MAX,
    "max_poll_interval_ms": INT32_MAX,
    "session_timeout_ms": INT32_MAX,
    "heartbeat_interval_ms": INT32_MAX,
    "fetch_min_bytes": 100_000_000,
    "fetch_max_bytes": 1_000_000_000,
    "fetch_max_wait_ms": 30_000,
    "max_partition_fetch_bytes": 1_000_000_000,
    "metadata_max_age_ms": INT32_MAX,
    "request_timeout_ms": 300_000,
    "retry_backoff_ms": 300_000,
    "retry_backoff_max_ms": 300_000,
    "reconnect_backoff_ms": 3_600_000,
    "reconnect_backoff_max_ms": 3_600_000,
    "connections_max_idle_ms": INT32_MAX,
}
# librdkafka waits for an answer for this long at least.
REQUEST_TIMEOUT_MIN_MS = 10


def faults(options: SidecarOptions) -> Iterator[str]:
    """Yield every fault, those of single settings first."""
    yield from choice_faults(options)
    numbers = list(number_faults(options))
    yield from numbers or time_faults(options)
    yield from name_faults(options)
    yield from strategy_faults(options.partition_assignment_strategy)
    yield from flag_faults(options.sidecar_flags)
    yield from address_faults(options)


def choice_faults(options: SidecarOptions) -> Iterator[str]:
    """Yield faults of settings with a fixed set of values."""
    for name, known in CHOICES.items():
        value = getattr(options, name)
        if value is not None and value not in known:
            yield f"{name} is {value!r}: use {said(known)}"


def number_faults(options: SidecarOptions) -> Iterator[str]:
    """Yield faults of single times in milliseconds and sizes in bytes."""
    for name, highest in HIGHEST.items():
        value = getattr(options, name)
        lowest = REQUEST_TIMEOUT_MIN_MS if name == "request_timeout_ms" else 1
        if value is not None and not is_integer(value, lowest, highest):
            unit = "milliseconds" if name.endswith("_ms") else "bytes"
            yield f"{name} is {value!r}: use an integer number of {unit} from {lowest} to {highest}"


def time_faults(options: SidecarOptions) -> Iterator[str]:
    """Yield faults of the number of heartbeats in a session."""
    session_ms, heartbeat_ms = options.session_timeout_ms, options.heartbeat_interval_ms
    if session_ms is not None and session_ms < HEARTBEATS_MIN:
        yield f"session_timeout_ms is {session_ms}: use {HEARTBEATS_MIN} or more, a session has {HEARTBEATS_MIN} heartbeats"
    if heartbeat_ms is None or (session_ms is None and is_given(options, "session-timeout-ms")):
        return
    session_ms = SESSION_TIMEOUT_MS if session_ms is None else session_ms
    if heartbeat_ms * HEARTBEATS_MIN > session_ms:
        yield (
            f"heartbeat_interval_ms is {heartbeat_ms}, session_timeout_ms is {session_ms}: use at most a third of the "
            "session timeout, or omit heartbeat_interval_ms"
        )


def name_faults(options: SidecarOptions) -> Iterator[str]:
    """Yield faults of the group's and the member's names."""
    if not is_text(options.group_id):
        yield f"group_id is {options.group_id!r}: use a text"
    elif len(options.group_id) > LENGTH_MAX:
        yield f"group_id has {len(options.group_id)} characters: use at most {LENGTH_MAX}"
    for name in ("client_id", "client_rack"):
        label = getattr(options, name)
        if label is not None and not is_label(label):
            yield f"{name} is {label!r}: use at most {LABEL_LENGTH_MAX} printable characters"
    if options.group_instance_id and not is_name(options.group_instance_id):
        yield f"group_instance_id is {options.group_instance_id!r}: use at most {LENGTH_MAX} of a-z, A-Z, 0-9, '.', '_', '-'"


def strategy_faults(given: str | Sequence[str] | None) -> Iterator[str]:
    """Yield faults of the strategies: Rota's own, and those of installed distributions."""
    if given is None:
        return
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    known = {*STRATEGIES, *(point.name for point in entry_points(group="rota.assignors"))}
    unknown = [name for name in names if name not in known]
    if not names or unknown:
        wrong = repr(unknown[0]) if unknown else "empty"
        yield f"partition_assignment_strategy is {wrong}: use {said(sorted(known))}"
    elif len(set(names)) < len(names):
        yield "partition_assignment_strategy names a strategy twice: list each once, the preferred one first"


def flag_faults(flags: Sequence[str]) -> Iterator[str]:
    """Check the form of flags; the sidecar checks their meaning."""
    if isinstance(flags, str):
        yield f"sidecar_flags is the string {flags!r}: use a list of flags"
        return
    for flag in flags:
        if not str(flag).startswith("--"):
            yield f"sidecar_flags has {flag!r}: write flags as '--name=value'"


def address_faults(options: SidecarOptions) -> Iterator[str]:
    """Yield faults of the addresses of servers and coordinator, and of the credentials for them."""
    try:
        servers = address_of(options.bootstrap_servers)
    except errors.InvalidArgument as error:
        yield str(error)
        return
    given = options.bootstrap_servers
    each = given.split(",") if isinstance(given, str) else given
    if len({is_rota(address.strip()) for address in each if address.strip()}) > 1:
        yield f"bootstrap_servers mixes addresses of Rota and Kafka ({given!r}): use those that have the records"
    for name, addresses in (
        ("bootstrap_servers", servers.removeprefix("rota://")),
        ("coordinator_address", options.coordinator_address or ""),
    ):
        for address in (part.strip() for part in addresses.split(",") if part.strip()):
            if not is_address(address.removeprefix("rota://")):
                yield f"{name} has {address!r}: use host:port, for example 127.0.0.1:7070"
    yield from coordination_faults(options, rota=is_rota(servers))
    yield from credential_faults(options, servers)
    yield from login_faults(options, rota=is_rota(servers))
    yield from security_faults(options, rota=is_rota(servers))


def coordination_faults(options: SidecarOptions, *, rota: bool) -> Iterator[str]:
    """Yield faults of the coordinator, which must fit the system of the records."""
    coordination, address = options.coordination, options.coordinator_address
    if rota:
        if coordination == "kafka":
            yield "coordination is 'kafka', but bootstrap_servers is Rota's log: use Kafka's brokers, or 'rota'"
        if address:
            yield "coordinator_address is set, but bootstrap_servers is Rota's log, which coordinates its groups: omit it"
    elif coordination == "rota" and not address and not is_given(options, "coordinator-address"):
        yield "coordination is 'rota', but the records are in Kafka: set coordinator_address"
    elif coordination != "rota" and address and not is_given(options, "coordination"):
        yield "coordinator_address is set, but Kafka's brokers coordinate the group: set coordination='rota'"


def credential_faults(options: SidecarOptions, servers: str) -> Iterator[str]:
    """Yield faults of files that belong together, and of tokens that TLS must protect."""
    given = options.credentials
    if given is None:
        return
    if (given.certificate_file is None) != (given.key_file is None):
        missing = "key_file" if given.key_file is None else "certificate_file"
        yield f"credentials has no {missing}: a client certificate needs certificate_file and key_file"
    if given.token_file is None:
        return
    of_rota = servers if is_rota(servers) else (options.coordinator_address or "")
    if not of_rota and not is_given(options, "fleet"):
        yield "credentials has a token_file, which only Rota's servers accept: use sasl_mechanism for Kafka"
    is_encrypted = given.ca_file is not None or given.certificate_file is not None
    if (
        is_encrypted
        or given.insecure
        or is_given(options, "tls")
        or is_given(options, "tls-ca")
        or is_given(options, "insecure")
    ):
        return
    for address in (part.strip() for part in of_rota.split(",") if part.strip()):
        if not is_loopback(address.removeprefix("rota://")):
            yield f"credentials would send the token to {address} unencrypted: set ca_file for TLS"


def login_faults(options: SidecarOptions, *, rota: bool) -> Iterator[str]:
    """Yield faults of the Kafka login."""
    mechanism = options.sasl_mechanism
    if mechanism != KERBEROS:
        yield from _set_without_mechanism(
            options, KERBEROS_SETTINGS, f"sasl_mechanism={KERBEROS!r}: set both"
        )
    if mechanism is None:
        names = (*PASSWORD_SETTINGS, *oauth.SETTINGS)
        yield from _set_without_mechanism(options, names, f"sasl_mechanism: use {said(CONSUMER_MECHANISMS)}")
    elif mechanism == KERBEROS:
        yield from _kerberos_faults(options)
    if mechanism is None or rota:
        return
    yield from oauth.faults(options, lambda name: is_given_as_flag(options, name))
    if mechanism not in (oauth.OAUTHBEARER, KERBEROS):
        yield from _password_faults(options)


def _set_without_mechanism(options: SidecarOptions, names: Sequence[str], remedy: str) -> Iterator[str]:
    for name in names:
        if getattr(options, name) and not is_given(options, "sasl-mechanism"):
            yield f"{name} is set without {remedy}"


def _password_faults(options: SidecarOptions) -> Iterator[str]:
    for name in PASSWORD_SETTINGS:
        if not getattr(options, name) and not is_given_as_flag(options, name):
            yield f"sasl_mechanism is set without {name}: set both"


def _kerberos_faults(options: SidecarOptions) -> Iterator[str]:
    for name in PASSWORD_SETTINGS:
        if getattr(options, name):
            yield f"{name} is set, but {KERBEROS} has neither user name nor password: use sasl_kerberos_principal and sasl_kerberos_keytab"
    for name in KERBEROS_SETTINGS:
        value = getattr(options, name)
        if value is not None and not (isinstance(value, str) and value and value.isprintable()):
            yield f"{name} is {value!r}: use a text without control characters, or omit it"


def security_faults(options: SidecarOptions, *, rota: bool) -> Iterator[str]:
    """Yield faults of TLS and of what belongs to connections of one of the two systems."""
    if rota:
        yield from security.rota_faults(options)
        for name in KAFKA_ONLY:
            if getattr(options, name) is not None:
                yield f"{name} is for Kafka, but bootstrap_servers is Rota's log, whose connections gRPC keeps and renews: omit it"
    has_login = options.sasl_mechanism is not None or is_given(options, "sasl-mechanism")
    yield from security.faults(options, has_login=has_login)


def is_text(value: object) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def is_integer(value: object, lowest: int, highest: int) -> bool:
    """Return whether a value is an integer, and within bounds, both inclusive."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def topics_fault(topics: Sequence[str], pattern: str) -> str:
    """Return the first fault of a subscription; empty if there is none."""
    for topic in topics:
        if not is_name(str(topic)):
            return f"{topic!r} is not a valid topic name: use at most {LENGTH_MAX} of a-z, A-Z, 0-9, '.', '_', '-'"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the pattern {pattern!r} is not a valid regular expression ({error})"
    return ""


def is_given(options: SidecarOptions, flag: str) -> bool:
    """Return whether the sidecar gets this flag in another way: in `sidecar_flags`, or by its environment variable."""
    variable = f"ROTA_{flag.replace('-', '_').upper()}"
    if variable in os.environ and variable not in CREDENTIAL_VARIABLES:
        return True
    return any(each == f"--{flag}" or each.startswith(f"--{flag}=") for each in options.sidecar_flags)


def is_given_as_flag(options: SidecarOptions, name: str) -> bool:
    """Return whether a setting of the login, or a file with it, is given in another way."""
    flag = name.replace("_", "-")
    return is_given(options, flag) or is_given(options, f"{flag}-file")


def is_name(text: str) -> bool:
    """Return whether Kafka accepts a text as the name of a topic or an instance."""
    return NAME.fullmatch(text) is not None and text not in (".", "..")


def is_address(text: str) -> bool:
    """Return whether a text is host:port, with an IPv6 host in brackets."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    has_host = (
        bool(bare) and not re.search(r"[\s/@]", bare) and (len(host) == len(bare) + 2 or ":" not in bare)
    )
    return has_host and port.isascii() and port.isdecimal() and 0 < int(port) <= PORT_MAX


def said(choices: Sequence[str]) -> str:
    """Format choices as a list: 'a', 'b' or 'c'."""
    return f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
