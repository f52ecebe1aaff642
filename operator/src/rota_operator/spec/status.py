"""What is seen of a group: the status of a ConsumerGroup, written by the operator alone."""

from typing import Literal

from pydantic import Field

from rota_operator.spec.declaring import Part


class Condition(Part):
    """Something that holds or does not, since when, and why."""

    type: str = Field(description="What it is about.", max_length=316)
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="Why, in one word.", max_length=1024)
    message: str = Field(default="", description="Why, in one sentence.", max_length=32768)
    last_transition_time: str = Field(description="Since when.")
    observed_generation: int = Field(default=0, description="Of the spec that was looked at.")


class Lag(Part):
    """How far behind the group is; what is not known is left out."""

    total: int | None = Field(default=None, description="Records, of all partitions.")
    max: int | None = Field(default=None, description="Records, of the partition that is furthest behind.")
    max_seconds: int | None = Field(
        default=None, description="The age of the oldest record that is not done."
    )


class LastRebalance(Part):
    """The last rebalance."""

    reason: str = Field(default="", description="What began it.")
    duration_ms: int = Field(default=0, description="How long it took.")
    moved_partitions: int = Field(default=0, description="How many partitions changed owners.")


class Scaling(Part):
    """Why there are so many replicas."""

    recommendation: int | None = Field(default=None, description="How many there should be.")
    explanation: str = Field(default="", description="How that was computed.")
    last_scale_time: str | None = Field(default=None, description="When it was changed last.")


class OffsetReset(Part):
    """What became of the reset that was asked for."""

    request_id: str = Field(description="Its name.")
    dry_run: bool = Field(default=True, description="Whether it was only planned.")
    phase: str = Field(description="How far it is.")
    plan_config_map: str = Field(default="", description="Where old and new offsets stand.")


class Placement(Part):
    """One member."""

    pod_name: str = Field(description="Its pod, or process.")
    member_id: str = Field(default="", description="What the coordinator calls it.")
    partitions: int = Field(default=0, description="How many it has.")
    lag: int | None = Field(default=None, description="Records that they are behind.")


class ConsumerGroupStatus(Part):
    """What is seen of the group."""

    observed_generation: int = Field(default=0, description="Of the spec that was looked at.")
    phase: str = Field(default="", description="In one word.")
    group_id: str = Field(default="", description="The group's name, as it is used.")
    sidecar_image: str = Field(default="", description="The sidecar's image, as it is used.")
    selector: str = Field(default="", description="The pods that consume.")
    replicas: int | None = Field(default=None, description="How many pods there are.")
    ready_replicas: int | None = Field(default=None, description="How many of them are ready.")
    desired_replicas: int | None = Field(default=None, description="How many there should be.")
    members: int | None = Field(default=None, description="How many members the group has.")
    partitions: int | None = Field(default=None, description="How many partitions there are to read.")
    unowned_partitions: int | None = Field(default=None, description="How many of them nobody has.")
    generation: int | None = Field(default=None, description="Of the group's assignment.")
    lag: Lag = Field(default=Lag(), description="How far behind the group is.")
    rebalance: LastRebalance = Field(default=LastRebalance(), description="The last rebalance.")
    scaling: Scaling = Field(default=Scaling(), description="Why there are so many replicas.")
    offset_reset: OffsetReset | None = Field(
        default=None, description="What became of the reset that was asked for."
    )
    placements: tuple[Placement, ...] = Field(
        default=(), max_length=100, description="The members, the first hundred."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=20, description="What holds, and what does not."
    )
