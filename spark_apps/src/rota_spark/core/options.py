"""
The options of `format("rota")`, validated before anything is read.

Spark passes options as texts and ignores case; an option that Spark does not know reaches the source, so the source refuses
what is misspelled, and names all that there are.
"""

from collections.abc import Mapping
from typing import NamedTuple

RECORDS_MAX = 10_000_000
TASKS_MAX = 100_000
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

BOOTSTRAP_SERVERS = "bootstrapServers"
TOPICS = "topics"
SIDECAR = "sidecar"
MAX_RECORDS = "maxRecordsPerBatch"
TASKS = "inputPartitions"
ISOLATION_LEVEL = "isolationLevel"
LIMIT_FILE = "batchLimitFile"
NAMES = (BOOTSTRAP_SERVERS, TOPICS, SIDECAR, MAX_RECORDS, TASKS, ISOLATION_LEVEL, LIMIT_FILE)
SECRETS = ("password", "secret", "token", "credential", "sasl", "jaas", "keystore", "truststore")


class InvalidOption(ValueError):
    """An option, or a combination of them, that the source refuses; the message has the remedy."""


class SourceOptions(NamedTuple):
    """The validated options."""

    # `rota://host:port`, or `host:port` of Kafka: as the executors reach it.
    bootstrap_servers: str
    # For a batch read.
    topics: tuple[str, ...] = ()
    # Address of the driver's sidecar, for a streaming read.
    sidecar: str = ""
    max_records: int = 100_000
    # Input partitions of a batch; 0: as many as the read has partitions.
    tasks: int = 0
    read_committed: bool = True
    # The file in which the driver leaves a limit below `max_records`.
    limit_file: str = ""


def options_of(given: Mapping[str, str]) -> SourceOptions:
    """Validate options. Raises InvalidOption."""
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name.lower() not in known:
            raise InvalidOption(_unknown(name))
    values = {known[name.lower()]: value.strip() for name, value in given.items()}
    if not values.get(BOOTSTRAP_SERVERS):
        raise InvalidOption(
            f'the option {BOOTSTRAP_SERVERS} is missing: set it to "rota://host:7070", or to Kafka\'s "host:9092"'
        )
    isolation = values.get(ISOLATION_LEVEL, ISOLATION_LEVELS[0])
    if isolation not in ISOLATION_LEVELS:
        raise InvalidOption(f"{ISOLATION_LEVEL} is {isolation!r}: use one of {', '.join(ISOLATION_LEVELS)}")
    defaults = SourceOptions("")
    return SourceOptions(
        values[BOOTSTRAP_SERVERS],
        tuple(filter(None, (each.strip() for each in values.get(TOPICS, "").split(",")))),
        values.get(SIDECAR, ""),
        _number(values, MAX_RECORDS, defaults.max_records, RECORDS_MAX),
        _number(values, TASKS, defaults.tasks, TASKS_MAX),
        isolation == ISOLATION_LEVELS[0],
        values.get(LIMIT_FILE, ""),
    )


def _unknown(name: str) -> str:
    if any(part in name.lower() for part in SECRETS):
        return (
            f'"{name}" is not an option, as options appear in plans and on pages: set ROTA_TLS_CA, ROTA_TOKEN_FILE, '
            "ROTA_SASL_MECHANISM, ROTA_SASL_USERNAME and ROTA_SASL_PASSWORD in the environment of driver and executors"
        )
    return f'the data source rota has no option "{name}": use {", ".join(NAMES)}'


def _number(values: Mapping[str, str], name: str, default: int, maximum: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= maximum:
        raise InvalidOption(f"{name} is {text!r}: use an integer from 1 to {maximum:,}")
    return int(text)
