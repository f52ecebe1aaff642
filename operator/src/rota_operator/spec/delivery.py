"""Field `spec.delivery`: how records reach the application, with retries, dead letters and limits."""

from typing import ClassVar, Literal

from pydantic import Field

from rota_operator.spec.scalars import Duration, Int32, NonNegativeInt, OptionalTopic
from rota_operator.spec.schema import NEEDS_RESTART, SpecModel, ValidationRule


class Http(SpecModel):
    """Target of mode http."""

    url: str = Field(
        json_schema_extra=NEEDS_RESTART,
        default="",
        max_length=2048,
        description="The application's URL, to which each record is posted. Required in mode http, and only there.",
    )


class RateLimit(SpecModel):
    """Limit of each member's delivery rate."""

    max: NonNegativeInt = Field(
        default=0, description="The maximum number of records per second and member. 0 means no limit."
    )


class Delivery(SpecModel):
    """Delivery of records to the application, with retries and dead letters."""

    mode: Literal["pull", "http"] = Field(
        default="pull",
        description="pull: the application requests records over gRPC. http: the sidecar posts them to http.url.",
    )
    ordering: Literal["partition", "key", "unordered"] = Field(
        json_schema_extra=NEEDS_RESTART,
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
        json_schema_extra=NEEDS_RESTART,
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
    priorities: dict[str, Int32] = Field(
        default={},
        max_length=1000,
        description="Priorities by topic: records of a topic with a higher number are delivered first. Topics that are not "
        "listed have priority 0.",
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "(self.mode == 'http') == (self.http.url != '')",
            "must set http.url if and only if mode is http",
            lambda part: (part.mode == "http") == bool(part.http.url),
        ),
    )
