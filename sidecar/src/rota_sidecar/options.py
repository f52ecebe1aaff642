"""The command line of the sidecar: its flags, their variables, and what is refused before anything starts."""

import argparse
import ipaddress
import os
import re
from collections.abc import Collection, Sequence
from importlib.metadata import version

ROTA_SCHEME = "rota://"
LOG_FORMATS = ("auto", "json", "text")
COORDINATIONS = ("auto", "rota", "kafka")
ACKNOWLEDGE = ("auto", "manual")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SWITCH = {"true": True, "1": True, "false": False, "0": False}
SWITCHES = ("tls", "insecure", "membership_only")
NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
GROUP_ID_LENGTH_MAX = 249
TEXT_LENGTH_MAX = 249
INT32_MAX = 2**31 - 1
PORT_MAX = 65_535
# The fewest heartbeats in a session: one that is lost must not end it.
HEARTBEATS_MIN = 3
# What could only be a secret: a flag that we do not have on purpose, a login in an address, a line of a login module.
SECRET = re.compile(
    r"--?(?:sasl-)?(?:password|username|user|token|secret)(?:=|$)|://[^/]*@|\b(?:password|token|secret)\s*=",
    re.IGNORECASE,
)
# The environment has them, and no flag does.
SASL_USERNAME, SASL_PASSWORD = "ROTA_SASL_USERNAME", "ROTA_SASL_PASSWORD"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; a variable ROTA_<FLAG> is its flag's default."""
    parser = argparse.ArgumentParser(
        prog="rota-sidecar",
        description="The group member beside an application. "
        "Each flag can be given as a variable too: ROTA_GROUP_ID for --group-id.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-sidecar')}")
    add_engine(parser)
    add_group(parser)
    add_times(parser)
    add_security(parser)
    add_process(parser)
    for action in parser._actions:  # argparse has no public list of its flags
        variable = "ROTA_" + action.option_strings[0].removeprefix("--").replace("-", "_").upper()
        if action.dest not in ("help", "version") and variable in os.environ:
            action.default = os.environ[variable]
    options = parser.parse_args(arguments)
    for name in SWITCHES:
        value = getattr(options, name)
        setattr(options, name, SWITCH.get(str(value).lower(), value))
    options.sasl_username = os.environ.get(SASL_USERNAME, "")
    options.sasl_password = os.environ.get(SASL_PASSWORD, "")
    return options


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Where records and groups are."""
    parser.add_argument(
        "--bootstrap-servers",
        default="rota://127.0.0.1:7070",
        metavar="ADDRESS,…",
        help="rota://HOST:PORT for Rota's log, HOST:PORT for Kafka",
    )
    parser.add_argument(
        "--coordination",
        choices=COORDINATIONS,
        default="auto",
        help="who coordinates the group; auto: Rota for rota://, else Kafka",
    )
    parser.add_argument(
        "--coordinator-address",
        default="",
        metavar="HOST:PORT,…",
        help="where Rota's coordinators are, when the records are Kafka's",
    )


def add_group(parser: argparse.ArgumentParser) -> None:
    """Who the member is, and what it wants."""
    for flag, default, metavar, meaning in (
        ("group-id", "", "NAME", "the group to be a member of"),
        ("topics", "", "NAME,…", "the topics to read"),
        ("topic-pattern", "", "REGEX", "the topics to read: all whose whole name matches, also later ones"),
        ("assignors", "cooperative-sticky", "NAME,…", "the strategies to offer, the preferred one first"),
        ("group-instance-id", "", "NAME", "a static member: its partitions wait for it over a restart"),
        ("client-id", "rota", "NAME", "what people see of the member in tools and logs"),
        ("rack", "", "NAME", "where this process is, for strategies that mind it"),
    ):
        parser.add_argument(f"--{flag}", default=default, metavar=metavar, help=meaning)
    parser.add_argument(
        "--max-moved-partitions-percent",
        type=int,
        default=100,
        metavar="N",
        help="load-aware-sticky: how many partitions a round may move",
    )


def add_times(parser: argparse.ArgumentParser) -> None:
    """How long things may take."""
    for flag, default, meaning in (
        ("session-timeout-ms", 45_000, "without a heartbeat for this long the member is removed"),
        ("heartbeat-interval-ms", 3_000, "how often to say that it lives"),
        ("rebalance-timeout-ms", 300_000, "how long a rebalance waits for this member"),
        ("topics-refresh-ms", 30_000, "how often to look for topics and partitions"),
        ("leave-timeout-ms", 10_000, "on SIGTERM: how long the application may take to let go"),
    ):
        parser.add_argument(f"--{flag}", type=int, default=default, metavar="N", help=meaning)


def add_security(parser: argparse.ArgumentParser) -> None:
    """What the sidecar shows, and whom it trusts. Secrets are files or variables, never arguments."""
    parser.add_argument(
        "--tls",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="connect with TLS; so it is as well when one of the next three is given",
    )
    for flag, metavar, meaning in (
        ("tls-ca", "PEM", "whom to trust; without it those that the system trusts"),
        ("tls-cert", "PEM", "the certificate to show"),
        ("tls-key", "PEM", "the key of that certificate"),
        ("token-file", "FILE", "the token to show to Rota's servers"),
        ("sasl-mechanism", "NAME", f"how to log in to Kafka: {', '.join(MECHANISMS)}"),
        ("sasl-username-file", "FILE", f"the name to log in with; or the variable {SASL_USERNAME}"),
        ("sasl-password-file", "FILE", f"the password to log in with; or the variable {SASL_PASSWORD}"),
    ):
        parser.add_argument(f"--{flag}", default="", metavar=metavar, help=meaning)
    parser.add_argument(
        "--insecure",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="send tokens and passwords beyond this machine without TLS",
    )


def add_process(parser: argparse.ArgumentParser) -> None:
    """What the process does with itself."""
    parser.add_argument(
        "--state-folder",
        default="",
        metavar="FOLDER",
        help="where to remember who the member is, for a restart; without it nothing is remembered",
    )
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="auto", help="auto: text on a terminal, else json"
    )
    parser.add_argument(
        "--membership-only",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="be a member and no more: events as JSON lines on stdout, commands on stdin",
    )
    parser.add_argument(
        "--acknowledge",
        choices=ACKNOWLEDGE,
        default="auto",
        help="with --membership-only: who says that revoked partitions are let go",
    )


def listed(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


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
    )


def switch_problem(options: argparse.Namespace) -> str:
    """What the process cannot do."""
    for name in SWITCHES:
        value = getattr(options, name)
        if not isinstance(value, bool):
            return f"ROTA_{name.upper()} is {value}: give true or false"
    for name, known in (
        ("log_format", LOG_FORMATS),
        ("coordination", COORDINATIONS),
        ("acknowledge", ACKNOWLEDGE),
    ):
        value = getattr(options, name)
        if value not in known:  # argparse does not look at what comes from the environment
            return f"ROTA_{name.upper()} is {value}: give one of {', '.join(known)}"
    if not options.membership_only:
        return "there is nothing to start yet but a bare member: add --membership-only"
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


def is_address(text: str) -> bool:
    """Whether that is HOST:PORT, with an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    has_brackets = len(host) == len(bare) + 2
    return (
        bool(bare)
        and (has_brackets or ":" not in bare)
        and not re.search(r"[\s/@]", bare)
        and port.isascii()
        and port.isdecimal()
        and 0 < int(port) <= PORT_MAX
    )


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
    if options.token_file and not rota:
        return "--token-file is for Rota's servers: Kafka asks for a login (--sasl-mechanism)"
    if options.token_file and not (has_tls(options) or options.insecure):
        far = [address for address in rota if not is_loopback(address.removeprefix(ROTA_SCHEME))]
        if far:
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


def is_name(text: str) -> bool:
    """Whether Kafka takes it as the name of a topic or of an instance."""
    return NAME.fullmatch(text) is not None and text not in (".", "..")


def is_loopback(address: str) -> bool:
    """Whether what is sent to HOST:PORT stays on this machine."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
