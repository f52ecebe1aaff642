"""Fields of `spec` that configure the group's sidecars: membership, assignment, offsets, delivery."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rota_operator.spec.declaring import Part, Rule
from rota_operator.spec.names import OptionalLabelKey, ResourceName
from rota_operator.spec.scalars import Count, Duration, Instant, Name, OptionalTopic, Seconds, Topic

# As the brokers' own limits are: group.min.session.timeout.ms and group.max.session.timeout.ms.
SESSION_MIN_S, SESSION_MAX_S = 6, 1800


class Membership(Part):
    """Timeouts and identity of the group's members."""

    session_timeout_seconds: int = Field(
        default=45,
        ge=SESSION_MIN_S,
        le=SESSION_MAX_S,
        description="A member that sends no heartbeat for this long is removed from the group and its partitions are reassigned.",
    )
    heartbeat_interval_seconds: Seconds = Field(
        default=3,
        description="The interval between a sidecar's heartbeats. At most one third of sessionTimeoutSeconds.",
    )
    rebalance_timeout_seconds: Seconds = Field(
        default=300,
        description="The maximum time for members to rejoin once a rebalance has begun, including the time to finish records of "
        "revoked partitions. A member that exceeds it is removed from the group.",
    )
    processing_timeout_seconds: Seconds = Field(
        default=120,
        description="An application that returns no verdict on the records it holds for this long loses its partitions; the "
        "sidecar stays in the group.",
    )
    static: bool = Field(
        default=False,
        description="Use static membership: the replica's name is its group.instance.id, and it keeps its partitions when it "
        "restarts within the session timeout.",
    )
    rack_topology_key: OptionalLabelKey = Field(
        default="topology.kubernetes.io/zone",
        description="The node label whose value is passed to rack-aware strategies as client.rack.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.heartbeatIntervalSeconds * 3 <= self.sessionTimeoutSeconds",
            "must have a sessionTimeoutSeconds of at least three times heartbeatIntervalSeconds",
            lambda part: part.heartbeat_interval_seconds * 3 <= part.session_timeout_seconds,
        ),
    )


class Assignment(Part):
    """How partitions are assigned to members."""

    strategy: Name = Field(
        default="cooperative-sticky",
        description="The partition assignment strategy: range, roundrobin, sticky, cooperative-sticky, load-aware-sticky, or the "
        "name of a rota.assignors entry point.",
    )
    max_moved_partitions_percent: int = Field(
        default=100,
        ge=1,
        le=100,
        description="The maximum percentage of partitions that one rebalance moves, for strategies that support it.",
    )


class Commit(Part):
    """Who commits offsets, and how often."""

    mode: Literal["periodic", "sync", "transactional", "external"] = Field(
        default="periodic",
        description="Who commits offsets. periodic: the sidecar, every intervalSeconds. sync: the sidecar, as soon as it has verdicts. "
        "transactional: the application's producer, in its transactions. external: the application's store, with its results.",
    )
    interval_seconds: Seconds = Field(default=5, description="The interval between commits in mode periodic.")


class ResetTo(Part):
    """The target position of a reset; exactly one field is set."""

    datetime: Instant | None = Field(
        default=None, description="The first record with a timestamp at or after this time (RFC 3339)."
    )
    earliest: Literal[True] | None = Field(default=None, description="The start of each partition.")
    latest: Literal[True] | None = Field(default=None, description="The end of each partition.")
    offset: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="This offset in each partition."
    )
    shift_by: int | None = Field(
        default=None,
        description="The committed offset moved by this number of records: forward if positive, backward if negative.",
    )
    by_duration: Duration | None = Field(
        default=None,
        description="The first record that is not older than this duration (ISO 8601, for example PT6H).",
    )
    from_config_map: ResourceName | None = Field(
        default=None, description="The name of a ConfigMap with the plan that a dry run has written."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.datetime), has(self.earliest), has(self.latest), has(self.offset), has(self.shiftBy), "
            "has(self.byDuration), has(self.fromConfigMap)].filter(given, given).size() == 1",
            "must set exactly one of datetime, earliest, latest, offset, shiftBy, byDuration, fromConfigMap",
            lambda part: len(part.model_fields_set) == 1,
        ),
    )


class Reset(Part):
    """A reset of committed offsets, executed once for each requestId: first as a dry run, then for real."""

    request_id: Name = Field(
        description="Identifies the reset. Each requestId is executed once; set a new one to reset again."
    )
    dry_run: bool = Field(
        default=True,
        description="Write the current and the new offsets to a ConfigMap without changing the group.",
    )
    topics: tuple[Topic, ...] = Field(
        default=(),
        max_length=1000,
        description="Topics whose offsets are reset. Defaults to all topics of the group.",
    )
    to: ResetTo = Field(description="The target position.")


class Offsets(Part):
    """Start positions, commits and resets of the group's offsets."""

    initial_offset: Literal["earliest", "latest", "none"] = Field(
        default="earliest",
        description="The start position of a partition without a committed offset. none: stop the partition and report it.",
    )
    on_offset_expired: Literal["earliest", "latest", "fail"] = Field(
        default="fail",
        description="The position of a partition whose committed offset is no longer in the log. fail: stop the partition and "
        "report it.",
    )
    commit: Commit = Field(default=Commit(), description="Who commits offsets, and how often.")
    reset: Reset | None = Field(
        default=None, description="A reset of the committed offsets, executed once for each requestId."
    )


class Http(Part):
    """Where records are posted in mode http."""

    url: str = Field(
        default="",
        max_length=2048,
        description="The application's URL, to which each record is posted. Required in mode http, and only there.",
    )


class RateLimit(Part):
    """Limit of each member's delivery rate."""

    max: Count = Field(
        default=0, description="The maximum number of records per second and member. 0 means no limit."
    )


class Delivery(Part):
    """Delivery of records to the application, with retries and dead letters."""

    mode: Literal["pull", "http"] = Field(
        default="pull",
        description="pull: the application requests records over gRPC. http: the sidecar posts them to http.url.",
    )
    ordering: Literal["partition", "key", "unordered"] = Field(
        default="partition",
        description="partition: records of a partition are processed one after another. key: records with the same key are "
        "processed one after another. unordered: records are processed in any order.",
    )
    concurrency: int = Field(
        default=64,
        ge=1,
        le=1_000_000,
        description="The maximum number of partitions processed concurrently by a member; with ordering key or unordered, of "
        "records.",
    )
    timeout: Duration = Field(
        default="PT30S",
        description="The timeout of an HTTP request (ISO 8601). The record is retried after it.",
    )
    retry: int = Field(
        default=5,
        ge=0,
        le=1_000_000,
        description="The maximum number of redeliveries of a failed record before it becomes a dead letter.",
    )
    backoff_policy: Literal["constant", "linear", "exponential"] = Field(
        default="exponential",
        description="How the delay grows from retry to retry of a record: constant, linear, or exponential (doubled), up to one "
        "minute.",
    )
    backoff_delay: Duration = Field(
        default="PT0.5S", description="The delay before the first retry (ISO 8601)."
    )
    dead_letter_topic: OptionalTopic = Field(
        default="",
        description="The topic to which records are written that have exhausted their retries. If empty, such a record stops "
        "its partition.",
    )
    http: Http = Field(default=Http(), description="The target of mode http.")
    rate_limit: RateLimit = Field(
        default=RateLimit(), description="The limit of each member's delivery rate."
    )
    priorities: dict[str, int] = Field(
        default={},
        max_length=1000,
        description="Priorities by topic: records of a topic with a higher number are delivered first. Topics that are not "
        "listed have priority 0.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.mode == 'http') == (self.http.url != '')",
            "must set http.url if and only if mode is http",
            lambda part: (part.mode == "http") == bool(part.http.url),
        ),
    )
