"""
The declaration of every flag: name, type and bounds, default, help, and the group setting that stands for it.

`arguments` builds the command line from them, `settings` maps settings to them, and `loading` makes the configuration of
their values. The order here is that of `--help`.
"""

import re
from typing import Any

from rota_service.private_files import FILE_MODE, SOCKET_PATH_BYTES_MAX
from rota_sidecar.config import kerberos_flags, oauth_flags
from rota_sidecar.config.flag_types import (
    Choice,
    File,
    Flag,
    Integer,
    Pattern,
    Priorities,
    Properties,
    Setting,
    SocketMode,
    Switch,
    Text,
    Texts,
    Unacceptable,
    is_name_or_empty,
    is_printable,
    quoted,
)
from rota_sidecar.config.parsing import NAME_CHARACTERS, ROTA_SCHEME, is_address, is_name
from rota_sidecar.core.delivery.config import CommitMode, Reset
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Backoff
from rota_sidecar.core.member.config import HEARTBEATS_MIN

INT32_MAX = 2**31 - 1
# Bytes fetched ahead of the application. A partition accepts a batch of any size while it holds nothing else.
AHEAD_MAX = 1 << 30
RECORDS_MAX = 1_000_000
# Bounds of librdkafka and of Rota's log.
FETCH_MIN_BYTES_MAX, FETCH_WAIT_MAX_MS = 100_000_000, 30_000
LINGER_MAX_MS = 1_000
GROUP_ID_LENGTH_MAX = 249
SECONDS_MAX = 1e9
OFF = False
FAIL = "fail"
READ_COMMITTED = "read_committed"
OAUTHBEARER, KERBEROS = "OAUTHBEARER", "GSSAPI"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, KERBEROS)
# Logins are read from these variables or from files: a flag would show them to every process of the machine.
SASL_USERNAME, SASL_PASSWORD = "ROTA_SASL_USERNAME", "ROTA_SASL_PASSWORD"
DURATION = re.compile(r"PT(?=\d)(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?")


def is_server(text: str) -> bool:
    """Return True for rota://HOST:PORT and for HOST:PORT."""
    return is_address(text.removeprefix(ROTA_SCHEME))


def is_bind_address(text: str) -> bool:
    """Return True for HOST:PORT, where port 0 is any free port, and for an empty text."""
    return not text or is_address(text, lowest_port=0)


def is_address_or_empty(text: str) -> bool:
    """Return True for HOST:PORT, and for an empty text."""
    return not text or is_address(text)


def seconds_to_ms(seconds: float) -> int:
    """Convert a setting to milliseconds. Raises Unacceptable."""
    if not abs(seconds) < SECONDS_MAX:
        raise Unacceptable(f"is {seconds}; expected a number of seconds")
    return round(seconds * 1000)


def duration_to_ms(duration: str) -> int:
    """Convert a duration to milliseconds. Raises Unacceptable."""
    found = DURATION.fullmatch(duration)
    if found is None:
        raise Unacceptable(
            f"is {quoted(duration)}; expected an ISO 8601 duration such as PT30S, PT0.5S or PT1M30S"
        )
    hours, minutes, rest_s = found.groups(default="0")
    return round((int(hours) * 3600 + int(minutes) * 60 + float(rest_s)) * 1000)


SERVER = Text("ADDRESS", is_server, "rota://HOST:PORT for Rota, HOST:PORT for Kafka")
COORDINATOR = Text("HOST:PORT", is_server, "HOST:PORT, for example rota:7070")
TOPIC = Text("NAME", is_name, f"a topic name: 1 to 249 {NAME_CHARACTERS}")
NAME = Text("NAME", is_name_or_empty, f"at most 249 {NAME_CHARACTERS}, and not '.' or '..'")
LABEL = Text("NAME", is_printable, "at most 249 printable characters")
BIND_ADDRESS = Text("HOST:PORT", is_bind_address, "HOST:PORT, or nothing to listen on no port")
SOCKET = File("FILE", SOCKET_PATH_BYTES_MAX)
MILLISECONDS = Integer(1, INT32_MAX)
BYTES = Integer(1, AHEAD_MAX)

# The backend and the coordinator.
BOOTSTRAP_SERVERS = Flag(
    "bootstrap-servers",
    Texts(SERVER),
    ("rota://127.0.0.1:7070",),
    "Servers that store the records: rota://HOST:PORT for Rota's log, HOST:PORT for Kafka",
)
COORDINATION = Flag(
    "coordination",
    Choice(("auto", "rota", "kafka")),
    "auto",
    "The system that coordinates the group. auto: the one that stores the records",
)
COORDINATOR_ADDRESS = Flag(
    "coordinator-address",
    Texts(COORDINATOR),
    (),
    "Addresses of Rota's coordinators, with --coordination rota and records in Kafka",
)
CONFIG = Flag(
    "config",
    Properties(),
    {},
    "A property of Kafka's client (librdkafka), for example fetch.min.bytes=1000. Can be repeated; in the variable one in each "
    "line",
)

# The member and the group.
GROUP_ID = Flag(
    "group-id",
    Text("NAME", lambda text: len(text) <= GROUP_ID_LENGTH_MAX, f"at most {GROUP_ID_LENGTH_MAX} characters"),
    "",
    "The consumer group that the sidecar joins. Required",
)
TOPICS = Flag("topics", Texts(TOPIC), (), "Topics to consume", Setting("topics"))
TOPIC_PATTERN = Flag(
    "topic-pattern",
    Pattern(),
    "",
    "Consume all topics whose full name matches, including topics that are created later",
    Setting("topicPattern"),
)
ASSIGNORS = Flag(
    "assignors",
    Texts(Text("NAME")),
    ("cooperative-sticky",),
    "Assignment strategies that the member offers, the preferred one first",
    Setting("assignment.strategy"),
)
GROUP_INSTANCE_ID = Flag(
    "group-instance-id", NAME, "", "Makes a static member, which keeps its partitions over a restart"
)
CLIENT_ID = Flag("client-id", LABEL, "rota", "Name of the member in tools and logs")
RACK = Flag("rack", LABEL, "", "Rack of this process (client.rack), for rack-aware strategies")
MAX_MOVED_PARTITIONS_PERCENT = Flag(
    "max-moved-partitions-percent",
    Integer(0, 100),
    100,
    "Percent of the partitions that a rebalance moves at most, with load-aware-sticky",
    Setting("assignment.maxMovedPartitionsPercent", is_fixed=True),
)

# Timeouts of the member, in milliseconds.
SESSION_TIMEOUT_MS = Flag(
    "session-timeout-ms",
    Integer(HEARTBEATS_MIN, INT32_MAX),
    45_000,
    "A member that sends no heartbeat for this long is removed from the group",
    Setting("membership.sessionTimeoutSeconds", seconds_to_ms, is_fixed=True),
)
HEARTBEAT_INTERVAL_MS: Flag[int | None] = Flag(
    "heartbeat-interval-ms",
    MILLISECONDS,
    None,
    "Interval between heartbeats, at most a third of the session timeout",
    Setting("membership.heartbeatIntervalSeconds", seconds_to_ms, is_fixed=True),
    derived="3000, or a third of the session timeout if that is less",
)
REBALANCE_TIMEOUT_MS = Flag(
    "rebalance-timeout-ms",
    MILLISECONDS,
    300_000,
    "Time that a rebalance waits for this member; its application gets less to release partitions",
    Setting("membership.rebalanceTimeoutSeconds", seconds_to_ms, is_fixed=True),
)
REQUEST_TIMEOUT_MS = Flag(
    "request-timeout-ms", MILLISECONDS, 30_000, "Timeout of a request to the group's coordinator"
)
RETRY_BACKOFF_MS = Flag(
    "retry-backoff-ms",
    MILLISECONDS,
    100,
    "Delay before a failed request to the group's coordinator is sent again; it doubles with each failure",
)
RETRY_BACKOFF_MAX_MS = Flag(
    "retry-backoff-max-ms", MILLISECONDS, 1_000, "Longest delay before a request is sent again"
)
TOPICS_REFRESH_MS = Flag(
    "topics-refresh-ms",
    MILLISECONDS,
    30_000,
    "Interval between lookups of topics and partitions; topics that do not exist are looked up sooner at first",
)
LEAVE_TIMEOUT_MS = Flag(
    "leave-timeout-ms",
    MILLISECONDS,
    10_000,
    "Time for the application to release its partitions on SIGTERM, after the drain",
)

# Encryption and authentication. Secrets are files or variables, never arguments.
TLS = Flag(
    "tls",
    Switch(),
    OFF,
    "Connect to Kafka and to Rota with TLS; implied by --tls-ca, --tls-cert and --tls-key",
)
TLS_CA = Flag(
    "tls-ca", File("PEM"), None, "Trusted certificate authorities. Without it: those of the operating system"
)
TLS_CERT = Flag("tls-cert", File("PEM"), None, "Client certificate")
TLS_KEY = Flag("tls-key", File("PEM"), None, "Key of the client certificate")
ROTA_TLS: Flag[bool | None] = Flag(
    "rota-tls",
    Switch(),
    None,
    "Connect to Rota's servers (coordinator, Fleet) with TLS; implied by --rota-tls-ca, --rota-tls-cert and --rota-tls-key. "
    "Any of them, or --no-rota-tls, replaces the --tls flags for Rota's servers",
)
ROTA_TLS_CA = Flag(
    "rota-tls-ca",
    File("PEM"),
    None,
    "Certificate authorities trusted for Rota's servers. With --rota-tls alone: those of the operating system",
)
ROTA_TLS_CERT = Flag("rota-tls-cert", File("PEM"), None, "Client certificate for Rota's servers")
ROTA_TLS_KEY = Flag("rota-tls-key", File("PEM"), None, "Key of the client certificate for Rota's servers")
TOKEN_FILE = Flag("token-file", File(), None, "Bearer token for Rota's servers")
SASL_MECHANISM = Flag(
    "sasl-mechanism",
    Text("NAME", lambda text: text in ("", *MECHANISMS), f"one of {', '.join(MECHANISMS)}"),
    "",
    f"SASL mechanism for Kafka: {', '.join(MECHANISMS)}",
)
SASL_USERNAME_FILE = Flag(
    "sasl-username-file", File(), None, f"SASL user name; or the variable {SASL_USERNAME}"
)
SASL_PASSWORD_FILE = Flag(
    "sasl-password-file", File(), None, f"SASL password; or the variable {SASL_PASSWORD}"
)
SASL_TOKEN_ENDPOINT_URL = oauth_flags.TOKEN_ENDPOINT_URL
SASL_CLIENT_ID = oauth_flags.CLIENT_ID
SASL_CLIENT_ID_FILE = oauth_flags.CLIENT_ID_FILE
SASL_CLIENT_SECRET_FILE = oauth_flags.CLIENT_SECRET_FILE
SASL_SCOPE = oauth_flags.SCOPE
SASL_TLS_CA = oauth_flags.TLS_CA
KERBEROS_SERVICE_NAME = kerberos_flags.SERVICE_NAME
KERBEROS_PRINCIPAL = kerberos_flags.PRINCIPAL
KERBEROS_KEYTAB = kerberos_flags.KEYTAB
INSECURE = Flag("insecure", Switch(), OFF, "Send tokens, passwords and records to other machines without TLS")

# The process.
STATE_FOLDER = Flag(
    "state-folder",
    File("FOLDER"),
    None,
    "Folder that keeps the member's identity over a restart; one for each sidecar. Without it: not kept",
)
LOG_FORMAT = Flag(
    "log-format",
    Choice(("auto", "json", "text")),
    "auto",
    "Format of the log. auto: text on a terminal, else JSON",
)
SETTINGS = Flag(
    "settings", File(), None, "The group's settings, as JSON; flags and variables take precedence over them"
)

# Listeners, Fleet and HTTP delivery.
APPLICATION_ADDRESS = Flag(
    "listen",
    BIND_ADDRESS,
    "127.0.0.1:7080",
    "Address that the application attaches to; empty: none. Beyond loopback only with --insecure",
)
APPLICATION_SOCKET = Flag(
    "listen-socket",
    SOCKET,
    None,
    "Unix socket that the application attaches to, accessible to this user only unless --listen-socket-mode says otherwise",
)
APPLICATION_SOCKET_MODE = Flag(
    "listen-socket-mode",
    SocketMode(),
    FILE_MODE,
    "Permissions of --listen-socket. 0666: a process of any user that sees the file can attach, for a socket that is private "
    "by its mount",
    derived="0600",
)
HTTP_ADDRESS = Flag(
    "http-listen", BIND_ADDRESS, "127.0.0.1:7081", "Address of probes and metrics; empty: none"
)
METRICS_GRANULARITY = Flag(
    "metrics-granularity",
    Choice(("partition", "topic", "group")),
    "partition",
    "Level at which metrics of partitions are exported: records summed, seconds of the partition that is furthest behind",
)
DRAIN_SOCKET = Flag(
    "drain-socket", SOCKET, None, "Unix socket that `rota-sidecar drain` uses, accessible to this user only"
)
DEAD_LETTER_TOPIC = Flag(
    "dead-letter-topic",
    NAME,
    "",
    "Topic for records that failed permanently. Without it such a record stops its partition",
    Setting("delivery.deadLetterTopic"),
)
PRIORITIES = Flag(
    "priorities",
    Priorities(),
    {},
    "Topics with a higher number are delivered first; topics that are not listed have 0",
    Setting("delivery.priorities"),
)
DELIVERY_URL = Flag(
    "delivery-url",
    Text("URL"),
    "",
    "URL that each record is posted to; then no application attaches",
    Setting("delivery.http.url", is_fixed=True),
)
FLEET = Flag(
    "fleet",
    Text("HOST:PORT", is_address_or_empty, "HOST:PORT, for example rota-operator.rota:7083"),
    "",
    "Address of the Fleet server, which receives reports and sends orders",
)
FLEET_TOKEN_FILE = Flag(
    "fleet-token-file", File(), None, "Bearer token for Fleet. Without it: that of --token-file"
)
SETTINGS_HASH = Flag("settings-hash", LABEL, "", "Hash of the pod's settings, reported to Fleet as it is")

# Delivery.
ORDERING = Flag(
    "ordering",
    Choice(tuple(each.value for each in Ordering)),
    "partition",
    "Records that are processed one after another: those of a partition, those of a key, or none (unordered)",
    Setting("delivery.ordering", is_fixed=True),
)
COMMIT_MODE = Flag(
    "commit-mode",
    Choice(tuple(each.value for each in CommitMode)),
    "periodic",
    "periodic: the sidecar commits at intervals. sync: as soon as there are verdicts. transactional, external: the "
    "application's producer or store commits",
    Setting("offsets.commit.mode"),
)
INITIAL_OFFSET = Flag(
    "initial-offset",
    Choice(tuple(each.value for each in Reset)),
    "earliest",
    "Start position of a partition without a committed offset. none: stop the partition and report it",
    Setting("offsets.initialOffset"),
)
ON_OFFSET_EXPIRED: Flag[str | None] = Flag(
    "on-offset-expired",
    Choice((FAIL, Reset.EARLIEST.value, Reset.LATEST.value)),
    None,
    "Position of a partition whose committed offset is no longer in the log. fail: stop the partition and report it",
    Setting("offsets.onOffsetExpired"),
    derived="as --initial-offset, and fail for none",
)
BACKOFF = Flag(
    "backoff",
    Choice(tuple(each.value for each in Backoff)),
    "exponential",
    "Growth of the delay from retry to retry",
    Setting("delivery.backoffPolicy"),
)
ISOLATION_LEVEL = Flag(
    "isolation-level",
    Choice(("read_uncommitted", READ_COMMITTED)),
    "read_uncommitted",
    "read_committed: skip records of transactions that are open or aborted",
)
CONCURRENCY = Flag(
    "concurrency",
    Integer(1, RECORDS_MAX),
    64,
    "Partitions processed concurrently; with --ordering key or unordered: records",
    Setting("delivery.concurrency"),
)
IN_FLIGHT_MAX = Flag(
    "in-flight-max", Integer(1, RECORDS_MAX), 10_000, "Records in flight for each partition, at most"
)
PROCESSING_TIMEOUT_MS = Flag(
    "processing-timeout-ms",
    MILLISECONDS,
    300_000,
    "An application that returns no verdict for this long loses its partitions",
    Setting("membership.processingTimeoutSeconds", seconds_to_ms),
)
COMMIT_INTERVAL_MS = Flag(
    "commit-interval-ms",
    MILLISECONDS,
    5_000,
    "Interval between commits, with --commit-mode periodic",
    Setting("offsets.commit.intervalSeconds", seconds_to_ms),
)
RETRIES = Flag(
    "retries", Integer(0, RECORDS_MAX), 5, "Redeliveries of a failed record", Setting("delivery.retry")
)
BACKOFF_MS = Flag(
    "backoff-ms",
    Integer(0, INT32_MAX),
    500,
    "Delay before the first retry",
    Setting("delivery.backoffDelay", duration_to_ms),
)
BACKOFF_MAX_MS = Flag("backoff-max-ms", Integer(0, INT32_MAX), 60_000, "Longest delay before a retry")
LINGER_MS = Flag(
    "linger-ms",
    Integer(0, LINGER_MAX_MS),
    0,
    "Time that records wait for more records on their way to the application. 0: not at all",
)
RATE_MAX = Flag(
    "rate-max",
    Integer(0, INT32_MAX),
    0,
    "Records per second, at most. 0: no limit",
    Setting("delivery.rateLimit.max"),
)
FETCH_MIN_BYTES = Flag(
    "fetch-min-bytes",
    Integer(1, FETCH_MIN_BYTES_MAX),
    1,
    "Bytes that the server waits for before it responds to a fetch, at most for --fetch-max-wait-ms",
)
FETCH_MAX_BYTES: Flag[int | None] = Flag(
    "fetch-max-bytes",
    BYTES,
    None,
    "Bytes of a response to a fetch, as the server stores them, at most; the first batch is returned whatever its size. On "
    "Rota's log 2 MiB is the most",
    derived="2097152 on Rota's log, 4194304 on Kafka",
)
FETCH_MAX_WAIT_MS: Flag[int | None] = Flag(
    "fetch-max-wait-ms",
    Integer(1, FETCH_WAIT_MAX_MS),
    None,
    "Time that the server waits for --fetch-min-bytes, at most",
    derived="500 with --fetch-min-bytes above 1; else 30000 on Rota's log, 200 on Kafka",
)
AHEAD_BYTES_MAX = Flag("ahead-bytes-max", BYTES, 1 << 20, "Bytes fetched ahead for each partition")
AHEAD_BYTES_TOTAL_MAX = Flag(
    "ahead-bytes-total-max", BYTES, 16 << 20, "Bytes fetched ahead for all partitions together"
)
DELIVERY_TIMEOUT_MS = Flag(
    "delivery-timeout-ms",
    MILLISECONDS,
    30_000,
    "Timeout of a request to --delivery-url",
    Setting("delivery.timeout", duration_to_ms, is_fixed=True),
)
DRAIN_TIMEOUT_MS = Flag(
    "drain-timeout-ms",
    MILLISECONDS,
    45_000,
    "On SIGTERM the process drains, leaves the group and exits within this time; also the time that a drain waits "
    "for verdicts",
)
STATIC = Flag(
    "static",
    Switch(),
    OFF,
    "Static membership; Fleet assigns the instance name unless --group-instance-id is given",
    Setting("membership.static", is_fixed=True),
)
SUSPEND = Flag(
    "suspend",
    Switch(),
    OFF,
    "Stay in the group and keep partitions, but deliver no records",
    Setting("suspend"),
)
ENDS_WITH_STDIN = Flag(
    "ends-with-stdin",
    Switch(),
    OFF,
    "Shut down when standard input ends, for a sidecar started by its application",
)

FLAGS: tuple[Flag[Any], ...] = tuple(flag for flag in tuple(vars().values()) if isinstance(flag, Flag))
BY_SETTING = {flag.setting.path: flag for flag in FLAGS if flag.setting is not None}
