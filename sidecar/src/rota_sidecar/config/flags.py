"""The flags of a member, whatever else the sidecar does."""

import argparse

LOG_FORMATS = ("auto", "json", "text")
COORDINATIONS = ("auto", "rota", "kafka")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# The fewest heartbeats in a session: one that is lost must not end it.
HEARTBEATS_MIN = 3
HEARTBEAT_MS = 3_000
# The environment has them, and no flag does.
SASL_USERNAME, SASL_PASSWORD = "ROTA_SASL_USERNAME", "ROTA_SASL_PASSWORD"


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
    of_heartbeats = (
        f"how often heartbeats are sent; unless given, {HEARTBEAT_MS}, and at most a third of the session"
    )
    for flag, default, meaning in (
        ("session-timeout-ms", 45_000, "without a heartbeat for this long the member is removed"),
        ("heartbeat-interval-ms", None, of_heartbeats),
        ("rebalance-timeout-ms", 300_000, "how long a rebalance waits for this member"),
        ("topics-refresh-ms", 30_000, "how often to look for topics and partitions"),
        (
            "leave-timeout-ms",
            10_000,
            "on SIGTERM, after the drain: how long the application may take to let go",
        ),
    ):
        parser.add_argument(f"--{flag}", type=int, default=default, metavar="N", help=meaning)


def derive_times(options: argparse.Namespace) -> None:
    """Set what follows from other flags unless it is given."""
    if options.heartbeat_interval_ms is None:
        options.heartbeat_interval_ms = min(HEARTBEAT_MS, options.session_timeout_ms // HEARTBEATS_MIN)


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
