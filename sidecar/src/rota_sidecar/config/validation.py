"""What is wrong with options, each in one sentence."""

import argparse
import re
from collections.abc import Collection, Sequence

from rota_service.addresses import is_loopback
from rota_sidecar.config import SWITCHES
from rota_sidecar.config.delivery_flags import INT32_MAX, serving_problem
from rota_sidecar.config.endpoints import ROTA_SCHEME, has_tls, rota_addresses, speaks_rota
from rota_sidecar.config.flags import (
    COORDINATIONS,
    HEARTBEATS_MIN,
    LOG_FORMATS,
    MECHANISMS,
    SASL_PASSWORD,
    SASL_USERNAME,
)
from rota_sidecar.config.parsing import is_address, is_name, listed

GROUP_ID_LENGTH_MAX = 249
TEXT_LENGTH_MAX = 249
# What could only be a secret: a flag that we do not have on purpose, a login in an address, a line of a login module.
SECRET = re.compile(
    r"--?(?:sasl-)?(?:password|username|user|token|secret)(?:=|$)|://[^/]*@|\b(?:password|token|secret)\s*=",
    re.IGNORECASE,
)


def problem(options: argparse.Namespace, strategies: Collection[str]) -> str:
    """What is wrong with the options, in one sentence; empty when nothing is. `strategies` are those that there are."""
    return (
        switch_problem(options)
        or engine_problem(options)
        or group_problem(options)
        or subscription_problem(options)
        or strategy_problem(options, strategies)
        or time_problem(options)
        or security_problem(options)
        or serving_problem(options)
    )


def switch_problem(options: argparse.Namespace) -> str:
    """What the process cannot do."""
    for name in SWITCHES:
        value = getattr(options, name)
        if not isinstance(value, bool):
            return f"ROTA_{name.upper()} is {value}: give true or false"
    for name, known in (("log_format", LOG_FORMATS), ("coordination", COORDINATIONS)):
        value = getattr(options, name)
        if value not in known:  # argparse does not look at what comes from the environment
            return f"ROTA_{name.upper()} is {value}: give one of {', '.join(known)}"
    return ""


def engine_problem(options: argparse.Namespace) -> str:
    """What is wrong with the addresses."""
    servers = listed(options.bootstrap_servers)
    if not servers:
        return "--bootstrap-servers: give rota://HOST:PORT, or HOST:PORT for Kafka"
    if len({address.startswith(ROTA_SCHEME) for address in servers}) > 1:
        return "--bootstrap-servers names Rota and Kafka at once: records are in one of them"
    for flag, addresses in (
        ("--bootstrap-servers", servers),
        ("--coordinator-address", listed(options.coordinator_address)),
    ):
        for address in addresses:
            if not is_address(address.removeprefix(ROTA_SCHEME)):
                return f"{flag} {address}: give HOST:PORT, for example rota://127.0.0.1:7070 or kafka:9092"
    return coordination_problem(options)


def coordination_problem(options: argparse.Namespace) -> str:
    """What is wrong with who is to coordinate."""
    if speaks_rota(options):
        if options.coordination == "kafka":
            return "--coordination kafka needs brokers, and --bootstrap-servers names a log of Rota"
        if options.coordinator_address:
            return "--coordinator-address is for records in Kafka: a rota:// server coordinates groups itself"
        return ""
    if options.coordination == "rota" and not options.coordinator_address:
        return "--coordination rota needs --coordinator-address when the records are in Kafka"
    if options.coordination != "rota" and options.coordinator_address:
        return "--coordinator-address needs --coordination rota: without it the brokers coordinate the group"
    return ""


def group_problem(options: argparse.Namespace) -> str:
    """What is wrong with the names."""
    if not options.group_id:
        return "--group-id is missing: name the group to be a member of"
    if len(options.group_id) > GROUP_ID_LENGTH_MAX:
        return f"--group-id: a group id has at most {GROUP_ID_LENGTH_MAX} characters"
    if options.group_instance_id and not is_name(options.group_instance_id):
        return (
            f"--group-instance-id {options.group_instance_id}: up to 249 letters, digits, '.', '_' and '-', "
            "and not '.' or '..' alone"
        )
    for flag, text in (("--client-id", options.client_id), ("--rack", options.rack)):
        if len(text) > TEXT_LENGTH_MAX or not text.isprintable():
            return f"{flag}: up to {TEXT_LENGTH_MAX} characters that can be printed"
    return ""


def subscription_problem(options: argparse.Namespace) -> str:
    """What is wrong with the topics."""
    topics = listed(options.topics)
    if not (topics or options.topic_pattern):
        return ""  # the application subscribes
    if bool(topics) == bool(options.topic_pattern):
        return "give either --topics or --topic-pattern: one of them says what to read"
    return topics_problem(topics) or pattern_problem(options.topic_pattern)


def topics_problem(topics: Sequence[str]) -> str:
    """What is wrong with names of topics."""
    for topic in topics:
        if not is_name(topic):
            return f"{topic!r} can be no topic: up to 249 letters, digits, '.', '_' and '-'"
    return ""


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the topic pattern {pattern} is no regular expression ({error}): correct it"
    return ""


def strategy_problem(options: argparse.Namespace, strategies: Collection[str]) -> str:
    """What is wrong with the strategies."""
    wrong = strategies_problem(listed(options.assignors), strategies)
    if wrong:
        return f"--assignors: {wrong}"
    if not 0 <= options.max_moved_partitions_percent <= 100:
        return "--max-moved-partitions-percent: give 0 to 100"
    return ""


def strategies_problem(names: Sequence[str], strategies: Collection[str]) -> str:
    """What is wrong with an offer of strategies."""
    if not names:
        return "name at least one strategy"
    if len(set(names)) < len(names):
        return "a strategy is named twice"
    unknown = sorted(set(names) - set(strategies))
    if unknown:
        return f"there is no strategy {', '.join(unknown)}; known are {', '.join(sorted(strategies))}"
    return ""


def time_problem(options: argparse.Namespace) -> str:
    """What is wrong with the times."""
    for name in (
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "rebalance_timeout_ms",
        "topics_refresh_ms",
        "leave_timeout_ms",
    ):
        if not 0 < getattr(options, name) <= INT32_MAX:
            return f"--{name.replace('_', '-')}: give 1 to {INT32_MAX}"
    if options.heartbeat_interval_ms * HEARTBEATS_MIN > options.session_timeout_ms:
        return (
            f"--heartbeat-interval-ms {options.heartbeat_interval_ms}: a session needs room for {HEARTBEATS_MIN} "
            f"heartbeats, so give {options.session_timeout_ms // HEARTBEATS_MIN} or less"
        )
    return ""


def security_problem(options: argparse.Namespace) -> str:
    """What is wrong with who we are, and whom we trust."""
    if bool(options.tls_cert) != bool(options.tls_key):
        missing = "--tls-key" if options.tls_cert else "--tls-cert"
        return f"{missing} is missing: a certificate is shown with its key"
    rota = rota_addresses(options)
    if options.token_file and not (rota or options.fleet):
        return "--token-file is for Rota's servers: Kafka asks for a login (--sasl-mechanism)"
    shown = [*rota] if options.token_file else []
    if options.fleet and (options.fleet_token_file or options.token_file):
        shown.append(options.fleet)
    far = [address for address in shown if not is_loopback(address.removeprefix(ROTA_SCHEME))]
    if far and not (has_tls(options) or options.insecure):
        return (
            f"{far[0]} is another machine, and everybody between could read the token: "
            "add --tls or --tls-ca, or --insecure if you mean it"
        )
    return login_problem(options)


def login_problem(options: argparse.Namespace) -> str:
    """What is wrong with the login to Kafka."""
    if not options.sasl_mechanism:
        if options.sasl_username_file or options.sasl_password_file:
            return f"--sasl-mechanism is missing: a login needs one of {', '.join(MECHANISMS)}"
        return ""
    if speaks_rota(options):
        return (
            "--sasl-mechanism is for Kafka: Rota's servers are shown a token (--token-file) or a certificate"
        )
    if options.sasl_mechanism not in MECHANISMS:
        return f"--sasl-mechanism {options.sasl_mechanism}: known are {', '.join(MECHANISMS)}"
    if not (options.sasl_username or options.sasl_username_file):
        return f"the login needs a name: give --sasl-username-file, or the variable {SASL_USERNAME}"
    if not (options.sasl_password or options.sasl_password_file):
        return f"the login needs a password: give --sasl-password-file, or the variable {SASL_PASSWORD}"
    return ""


def secret_in(arguments: Sequence[str]) -> str:
    """Why the arguments may not be used: everybody on a machine can read them. Empty when they hold no secret."""
    if any(SECRET.search(argument) for argument in arguments):
        return (
            "an argument looks like a secret, and everybody on this machine can read arguments: give tokens and "
            f"logins as files (--token-file, --sasl-password-file) or as variables ({SASL_PASSWORD})"
        )
    return ""
