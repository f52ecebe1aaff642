"""Field `spec.offsets`: start positions, commits and resets of the group's offsets."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rota_operator.spec.names import ResourceName
from rota_operator.spec.scalars import Duration, PositiveInt, ShortText, Timestamp, Topic
from rota_operator.spec.schema import SpecModel, ValidationRule


class Commit(SpecModel):
    """Offset commits: the process that makes them, and their interval."""

    mode: Literal["periodic", "sync", "transactional", "external"] = Field(
        default="periodic",
        description="The committer of offsets. periodic: the sidecar, every intervalSeconds. sync: the sidecar, as soon as it has verdicts. "
        "transactional: the application's producer, in its transactions. external: the application's store, with its results.",
    )
    interval_seconds: PositiveInt = Field(
        default=5, description="The interval between commits in mode periodic."
    )


class ResetTo(SpecModel):
    """The target position of a reset; exactly one field is set."""

    datetime: Timestamp | None = Field(
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

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "[has(self.datetime), has(self.earliest), has(self.latest), has(self.offset), has(self.shiftBy), "
            "has(self.byDuration), has(self.fromConfigMap)].filter(given, given).size() == 1",
            "must set exactly one of datetime, earliest, latest, offset, shiftBy, byDuration, fromConfigMap",
            lambda part: len(part.model_fields_set) == 1,
        ),
    )


class Reset(SpecModel):
    """A reset of committed offsets, executed once for each requestId: first as a dry run, then for real."""

    request_id: ShortText = Field(
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


class Offsets(SpecModel):
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
    commit: Commit = Field(default=Commit(), description="The committer of offsets, and the interval.")
    reset: Reset | None = Field(
        default=None, description="A reset of the committed offsets, executed once for each requestId."
    )
