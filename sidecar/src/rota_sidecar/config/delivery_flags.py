"""The flags of a sidecar that delivers records: to whom, how, and who may look; what is wrong with them."""

import argparse
from typing import NamedTuple

from rota_service.addresses import is_loopback
from rota_service.private_files import SOCKET_PATH_BYTES_MAX
from rota_sidecar.config.parsing import is_address, is_name, listed
from rota_sidecar.config.urls import url_problem
from rota_sidecar.core.delivery.config import CommitMode, DeliveryConfig, Reset
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Backoff, Rules

INT32_MAX = 2**31 - 1
# How much is read ahead at most, in bytes; a partition takes a batch of any size where nothing else is read.
AHEAD_MAX = 1 << 30
RECORDS_MAX = 1_000_000
LINGER_MAX_MS = 1_000
FAIL = "fail"
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


class Number(NamedTuple):
    """A flag that is one."""

    default: int
    lowest: int
    highest: int
    meaning: str


# A default of None is derived from other flags, by `derive`.
CHOICES: dict[str, tuple[list[str], str | None, str]] = {
    "ordering": ([each.value for each in Ordering], "partition", "which records must wait for which"),
    "commit-mode": ([each.value for each in CommitMode], "periodic", "who commits, and when"),
    "initial-offset": ([each.value for each in Reset], "earliest", "where to begin without a commit"),
    "on-offset-expired": (
        [FAIL, Reset.EARLIEST.value, Reset.LATEST.value],
        None,
        "where to go on when what was committed is no longer in the log; unless given, as --initial-offset; for none: fail",
    ),
    "backoff": ([each.value for each in Backoff], "exponential", "how the wait before a retry grows"),
    "isolation-level": (list(ISOLATION_LEVELS), "read_uncommitted", "whether to read open transactions"),
}
NUMBERS = {
    "concurrency": Number(
        64, 1, RECORDS_MAX, "partitions, or with --ordering key or unordered records, in work at a time"
    ),
    "in-flight-max": Number(10_000, 1, RECORDS_MAX, "records of a partition in the application's hands"),
    "processing-timeout-ms": Number(
        120_000, 1, INT32_MAX, "without a verdict for this long it loses its partitions"
    ),
    "commit-interval-ms": Number(5_000, 1, INT32_MAX, "with --commit-mode periodic: how often"),
    "retries": Number(5, 0, RECORDS_MAX, "deliveries of a record after the first one"),
    "backoff-ms": Number(500, 0, INT32_MAX, "the wait before the first retry"),
    "backoff-max-ms": Number(60_000, 0, INT32_MAX, "the longest wait before a retry"),
    "linger-ms": Number(
        0, 0, LINGER_MAX_MS, "how long records wait for others on their way to the application; 0: not at all"
    ),
    "rate-max": Number(0, 0, INT32_MAX, "records a second; 0: no limit"),
    "ahead-bytes-max": Number(1 << 20, 1, AHEAD_MAX, "how much of a partition is read ahead"),
    "ahead-bytes-total-max": Number(16 << 20, 1, AHEAD_MAX, "the same for all partitions together"),
    "delivery-timeout-ms": Number(30_000, 1, INT32_MAX, "with --delivery-url: how long an answer may take"),
    "drain-timeout-ms": Number(
        45_000,
        1,
        INT32_MAX,
        "the time to drain and to leave on SIGTERM; a drain alone waits for verdicts so long",
    ),
}


def add_serving(parser: argparse.ArgumentParser) -> None:
    """Add the flags of deliveries, listeners and Fleet."""
    for flag, default, metavar, meaning in (
        ("settings", "", "FILE", "the group's settings, as JSON; flags and variables go before them"),
        ("listen", "127.0.0.1:7080", "HOST:PORT", "where the application attaches; empty: nowhere"),
        ("listen-socket", "", "FILE", "the same on a socket, which is made for this user alone"),
        (
            "http-listen",
            "127.0.0.1:7081",
            "HOST:PORT",
            "where probes and metrics are; empty: nowhere",
        ),
        (
            "drain-socket",
            "",
            "FILE",
            "where `rota-sidecar drain` asks for a drain: a socket for this user alone; empty: nowhere",
        ),
        ("dead-letter-topic", "", "NAME", "where records go that have failed for good; without it they stop"),
        ("priorities", "", "TOPIC=N,…", "topics with a higher number go first; the others have 0"),
        ("delivery-url", "", "URL", "send each record there by HTTP; then no application attaches"),
        ("fleet", "", "HOST:PORT", "who is reported to, and gives orders"),
        ("fleet-token-file", "", "FILE", "the token to show to Fleet; without it that of --token-file"),
    ):
        parser.add_argument(f"--{flag}", default=default, metavar=metavar, help=meaning)
    for flag, (choices, chosen, meaning) in CHOICES.items():
        parser.add_argument(f"--{flag}", choices=choices, default=chosen, help=meaning)
    for flag, number in NUMBERS.items():
        parser.add_argument(f"--{flag}", type=int, default=number.default, metavar="N", help=number.meaning)
    for flag, meaning in (
        ("static", "a static member whose instance name Fleet gives out, unless --group-instance-id does"),
        ("suspend", "be a member, and read nothing"),
        ("ends-with-stdin", "end when standard input does, for whoever starts a sidecar for itself"),
    ):
        parser.add_argument(f"--{flag}", action=argparse.BooleanOptionalAction, default=False, help=meaning)


def derive_serving(options: argparse.Namespace) -> None:
    """Set what follows from other flags unless it is given."""
    if options.on_offset_expired is None:
        is_none = options.initial_offset == Reset.NONE.value
        options.on_offset_expired = FAIL if is_none else options.initial_offset


def serving_problem(options: argparse.Namespace) -> str:
    """What is wrong with them."""
    return (
        choice_problem(options)
        or number_problem(options)
        or listening_problem(options)
        or delivery_problem(options)
        or fleet_problem(options)
    )


def choice_problem(options: argparse.Namespace) -> str:
    """argparse does not look at what comes from variables and settings."""
    for flag, (choices, _, _) in CHOICES.items():
        value = getattr(options, dest_of(flag))
        if value not in choices:
            return f"--{flag} {value}: give one of {', '.join(choices)}"
    return ""


def number_problem(options: argparse.Namespace) -> str:
    """What is too small, or too large."""
    for flag, number in NUMBERS.items():
        if not number.lowest <= getattr(options, dest_of(flag)) <= number.highest:
            return f"--{flag}: give {number.lowest} to {number.highest}"
    return ""


def listening_problem(options: argparse.Namespace) -> str:
    """Where nobody can be."""
    for flag, address in (("listen", options.listen), ("http-listen", options.http_listen)):
        if address and not is_address(address, lowest_port=0):
            return f"--{flag} {address}: give HOST:PORT, or nothing to listen nowhere"
    if options.listen and not is_loopback(options.listen) and not options.insecure:
        return (
            f"--listen {options.listen} is open to other machines, and whoever gets there is the application: "
            "give a loopback address, or --insecure if you mean it"
        )
    for flag, path in (("listen-socket", options.listen_socket), ("drain-socket", options.drain_socket)):
        if len(path.encode()) > SOCKET_PATH_BYTES_MAX:
            return f"--{flag}: a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes"
    if options.drain_socket and options.drain_socket == options.listen_socket:
        return "--drain-socket and --listen-socket are the same: give each its own path"
    if not (options.listen or options.listen_socket or options.delivery_url):
        return "there is nobody to deliver to: give --listen, --listen-socket or --delivery-url"
    return ""


def delivery_problem(options: argparse.Namespace) -> str:
    """What cannot be done with records."""
    topic = options.dead_letter_topic
    if topic and not is_name(topic):
        return f"--dead-letter-topic {topic} can be no topic: up to 249 letters, digits, '.', '_' and '-'"
    if topic and topic in listed(options.topics):
        return f"--dead-letter-topic {topic} is one of --topics: its records would come round for ever"
    url = options.delivery_url
    if url:
        wrong = url_problem(url, insecure=options.insecure)
        if wrong:
            return f"--delivery-url: {wrong}"
    if url and not (options.topics or options.topic_pattern):
        return "give either --topics or --topic-pattern: nobody subscribes by HTTP"
    return priorities_problem(options.priorities)


def priorities_problem(text: str) -> str:
    """What is wrong with a list of them."""
    for part in listed(text):
        topic, _, number = part.partition("=")
        if not is_name(topic) or not number.removeprefix("-").isdecimal() or not number.isascii():
            return f"--priorities {part}: give TOPIC=N, for example urgent=10"
    return ""


def fleet_problem(options: argparse.Namespace) -> str:
    """What is wrong with whom to obey."""
    if options.fleet and not is_address(options.fleet):
        return f"--fleet {options.fleet}: give HOST:PORT, for example rota-operator.rota:7083"
    if options.fleet_token_file and not options.fleet:
        return "--fleet-token-file is shown to Fleet: give --fleet, or leave it out"
    if options.static and not (options.group_instance_id or options.fleet):
        return "--static needs a name: give --group-instance-id, or --fleet for somebody who gives names out"
    return ""


def delivery_config(options: argparse.Namespace) -> DeliveryConfig:
    """What deliveries are set to."""
    return DeliveryConfig(
        group_id=options.group_id,
        rules=Rules(
            ordering=Ordering(options.ordering),
            in_flight_max=options.in_flight_max,
            retries=options.retries,
            backoff=Backoff(options.backoff),
            backoff_ms=options.backoff_ms,
            backoff_max_ms=options.backoff_max_ms,
            has_dead_letters=bool(options.dead_letter_topic),
        ),
        concurrency=options.concurrency,
        processing_timeout_ms=options.processing_timeout_ms,
        commit_mode=CommitMode(options.commit_mode),
        commit_interval_ms=options.commit_interval_ms,
        initial_offset=Reset(options.initial_offset),
        on_offset_expired=expired(options.on_offset_expired),
        dead_letter_topic=options.dead_letter_topic,
        rate_max=options.rate_max,
        priorities=priorities(options.priorities),
        ahead_bytes_max=options.ahead_bytes_max,
        ahead_bytes_total_max=options.ahead_bytes_total_max,
        suspended=options.suspend,
    )


def expired(word: str) -> Reset:
    """Where to go on."""
    return Reset.NONE if word == FAIL else Reset(word)


def priorities(text: str) -> dict[str, int]:
    """By topic."""
    parts = (part.partition("=") for part in listed(text))
    return {topic: int(number) for topic, _, number in parts}


def dest_of(flag: str) -> str:
    """As argparse keeps it."""
    return flag.replace("-", "_")
