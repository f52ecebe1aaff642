"""How the group consumes: who is a member, who gets what, where reading begins, how records come."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rota_operator.spec.declaring import Part, Rule
from rota_operator.spec.names import OptionalLabelKey, ResourceName
from rota_operator.spec.scalars import Count, Duration, Instant, Name, OptionalTopic, Seconds, Topic

# As the brokers' own limits are: group.min.session.timeout.ms and group.max.session.timeout.ms.
SESSION_MIN_S, SESSION_MAX_S = 6, 1800


class Membership(Part):
    """How the group learns who lives."""

    session_timeout_seconds: int = Field(
        default=45,
        ge=SESSION_MIN_S,
        le=SESSION_MAX_S,
        description="Without a heartbeat for so long a member is out.",
    )
    heartbeat_interval_seconds: Seconds = Field(
        default=3, description="How often the sidecar says that it lives."
    )
    rebalance_timeout_seconds: Seconds = Field(
        default=300, description="How long a member may take to let go of partitions."
    )
    processing_timeout_seconds: Seconds = Field(
        default=120,
        description="Without a verdict for so long on what it holds, an application loses its partitions.",
    )
    static: bool = Field(default=False, description="Keep a replica's partitions over its restarts.")
    rack_topology_key: OptionalLabelKey = Field(
        default="topology.kubernetes.io/zone",
        description="The node's label that names its rack, for strategies that mind racks.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.heartbeatIntervalSeconds * 3 <= self.sessionTimeoutSeconds",
            "lets a session end with two lost heartbeats: make sessionTimeoutSeconds at least three times "
            "heartbeatIntervalSeconds",
            lambda part: part.heartbeat_interval_seconds * 3 <= part.session_timeout_seconds,
        ),
    )


class Assignment(Part):
    """Who gets which partitions."""

    strategy: Name = Field(
        default="cooperative-sticky",
        description="range, roundrobin, sticky, cooperative-sticky, load-aware-sticky, or the entry point of another one.",
    )
    max_moved_partitions_percent: int = Field(
        default=100, ge=1, le=100, description="How much one rebalance may move, where the strategy minds it."
    )


class Commit(Part):
    """Who commits what is done, and when."""

    mode: Literal["periodic", "sync", "transactional", "external"] = Field(
        default="periodic",
        description="periodic and sync: the sidecar; transactional: the application's producer; external: its store.",
    )
    interval_seconds: Seconds = Field(default=5, description="With periodic: how often.")


class ResetTo(Part):
    """Where to: one of these."""

    datetime: Instant | None = Field(default=None, description="The first record at or after this time.")
    earliest: Literal[True] | None = Field(default=None, description="The beginning of each partition.")
    latest: Literal[True] | None = Field(default=None, description="The end of each partition.")
    offset: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="This offset, in each partition."
    )
    shift_by: int | None = Field(
        default=None, description="So many records on, or back where it is negative."
    )
    by_duration: Duration | None = Field(
        default=None, description="The first record that is no older than this."
    )
    from_config_map: ResourceName | None = Field(
        default=None, description="The plan in this ConfigMap, as a dry run writes it."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.datetime), has(self.earliest), has(self.latest), has(self.offset), has(self.shiftBy), "
            "has(self.byDuration), has(self.fromConfigMap)].filter(given, given).size() == 1",
            "names no single place: give exactly one of datetime, earliest, latest, offset, shiftBy, byDuration, "
            "fromConfigMap",
            lambda part: len(part.model_fields_set) == 1,
        ),
    )


class Reset(Part):
    """A reset of committed offsets: it acts once for each requestId, as a dry run and then in earnest."""

    request_id: Name = Field(description="Its name; another one is another reset.")
    dry_run: bool = Field(
        default=True, description="Write old and new offsets to a ConfigMap, and change nothing."
    )
    topics: tuple[Topic, ...] = Field(
        default=(), max_length=1000, description="Of these topics; none: of all."
    )
    to: ResetTo = Field(description="Where to.")


class Offsets(Part):
    """Where reading begins, and what is committed."""

    initial_offset: Literal["earliest", "latest", "none"] = Field(
        default="earliest", description="Where to begin without a commit; none: stop, and say so."
    )
    on_offset_expired: Literal["earliest", "latest", "fail"] = Field(
        default="fail",
        description="Where to go on when what was committed is no longer in the log; fail: stop, and say so.",
    )
    commit: Commit = Field(default=Commit(), description="Who commits, and when.")
    reset: Reset | None = Field(default=None, description="Go elsewhere, once.")


class Http(Part):
    """Delivery by HTTP."""

    url: str = Field(
        default="", max_length=2048, description="Where the application listens; with mode http."
    )


class RateLimit(Part):
    """How much each member is given."""

    max: Count = Field(default=0, description="Records a second; 0: no limit.")


class Delivery(Part):
    """How records come to the application."""

    mode: Literal["pull", "http"] = Field(
        default="pull", description="The application asks for them, or is sent them by HTTP."
    )
    ordering: Literal["partition", "key", "unordered"] = Field(
        default="partition", description="Which records wait for which."
    )
    concurrency: int = Field(
        default=64,
        ge=1,
        le=1_000_000,
        description="Partitions, or with another ordering records, in work at a time.",
    )
    timeout: Duration = Field(default="PT30S", description="How long an HTTP answer may take.")
    retry: int = Field(
        default=5, ge=0, le=1_000_000, description="Deliveries of a record after the first one."
    )
    backoff_policy: Literal["constant", "linear", "exponential"] = Field(
        default="exponential", description="How the wait before a retry grows."
    )
    backoff_delay: Duration = Field(default="PT0.5S", description="The wait before the first retry.")
    dead_letter_topic: OptionalTopic = Field(
        default="",
        description="Where records go that have failed for good; empty: they stop their partition.",
    )
    http: Http = Field(default=Http(), description="With mode http.")
    rate_limit: RateLimit = Field(default=RateLimit(), description="How much each member is given.")
    priorities: dict[str, int] = Field(
        default={}, max_length=1000, description="Topics with a higher number go first; others have 0."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.mode == 'http') == (self.http.url != '')",
            "contradicts itself: give mode http and http.url, or neither",
            lambda part: (part.mode == "http") == bool(part.http.url),
        ),
    )
