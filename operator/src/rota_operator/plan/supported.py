"""
Finds fields of a spec that a backend does not implement yet, or that have no meaning there; they are rejected by path, never
ignored.

There are two backends: local processes (`rota up`) and a Kubernetes cluster. IGNORED_FIELDS have no meaning for local
processes, which ignore them, because the same manifests are meant for a cluster.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from rota_operator.plan.kafka_properties import WITHOUT_LIBRDKAFKA, property_problem
from rota_operator.plan.settings import ISOLATION
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import FieldError, Path


class Backend(Enum):
    """Environment in which the workloads of a ConsumerGroup run."""

    LOCAL = "local"
    CLUSTER = "cluster"


UNSUPPORTED_FIELDS: Mapping[Backend, Sequence[Path]] = {
    Backend.LOCAL: (("auth",), ("spark", "apiVersion"), ("monitoring", "alerts")),
    Backend.CLUSTER: (),
}
# Of a group with SparkApplications, each with the reason: a driver reads and commits by itself, in a pod of the Spark operator's.
NOT_FOR_SPARK: Mapping[Path, str] = {
    ("replicas",): "the number of partitions decides how many there are",
    ("autoscaling",): "the number of partitions decides how many there are",
    ("delivery",): "their drivers read the records themselves",
    ("sidecar", "container"): "the sidecar belongs to the driver's container",
    ("podDisruptionBudget",): "their drivers' pods have no scale that a budget could be counted by",
}
SPARK_COMMIT_MODES = ("external", "sync")
# Of local processes, each with the reason.
IGNORED_FIELDS: Mapping[Path, str] = {
    ("deletionPolicy",): "the group's log goes with the folder of `rota up`",
    ("membership", "rackTopologyKey"): "there are no nodes",
    ("podDisruptionBudget",): "nothing evicts local processes",
    ("sidecar", "image"): "the installed sidecar runs",
    ("sidecar", "imagePullPolicy"): "there are no images",
    ("sidecar", "imagePullSecrets"): "there are no images",
    ("sidecar", "resources"): "processes have no limits",
}
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
# As the API server parses a quantity.
QUANTITY = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
# Longest time of a sidecar's flags and settings, 2^31 - 1 ms.
TIME_S_MAX = 2_147_483
# As a sidecar reads it.
DURATION = re.compile(r"PT(?=\d)(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?")
NOT_YET = "is not supported yet; remove it"
NO_AUTOSCALING = "must not be true with spark.enabled: the number of SparkApplications follows spark.partitionsPerApplication; remove it"


def unsupported(spec: ConsumerGroupSpec, backend: Backend = Backend.LOCAL) -> list[FieldError]:
    """Return an error for each unsupported field with a value other than its default."""
    given = spec.model_dump(mode="json", by_alias=True)
    defaults = _with_defaults(spec)
    found = [
        FieldError(("spec", *leaf), NOT_YET)
        for path in UNSUPPORTED_FIELDS[backend]
        for leaf in _differences(_value_at(given, path), _value_at(defaults, path), path)
    ]
    found += _property_errors(spec)
    if backend is Backend.CLUSTER:
        found += _cluster_errors(spec)
        found += _spark_errors(spec, given, defaults)
    elif spec.spark.enabled and spec.autoscaling.enabled:
        found.append(FieldError(("spec", "autoscaling", "enabled"), NO_AUTOSCALING))
    return found


def sidecar_errors(spec: ConsumerGroupSpec) -> list[FieldError]:
    """Return an error for each value with which a sidecar would not start; its pod would restart for ever."""
    return [*_sidecar_errors(spec), *_time_errors(spec)]


def resource_errors(spec: ConsumerGroupSpec) -> list[FieldError]:
    """Return an error for each amount of a resource that the API server cannot parse; it answers an internal error to one."""
    resources = spec.sidecar.resources
    return [
        FieldError(
            ("spec", "sidecar", "resources", part, name),
            f"must be a quantity such as 50m or 64Mi; got {amount}",
        )
        for part, amounts in (("limits", resources.limits), ("requests", resources.requests))
        for name, amount in sorted(amounts.items())
        if QUANTITY.fullmatch(amount) is None
    ]


def _sidecar_errors(spec: ConsumerGroupSpec) -> Iterator[FieldError]:
    if (level := spec.config.get(ISOLATION, ISOLATION_LEVELS[0])) not in ISOLATION_LEVELS:
        yield FieldError(
            ("spec", "config", ISOLATION), f"must be one of {', '.join(ISOLATION_LEVELS)}; got {level}"
        )
    if spec.delivery.dead_letter_topic in spec.topics:
        yield FieldError(
            ("spec", "delivery", "deadLetterTopic"),
            "must not be one of spec.topics: its records would be consumed again without end",
        )
    try:
        re.compile(spec.topic_pattern)
    except (re.error, RecursionError, OverflowError) as error:
        yield FieldError(("spec", "topicPattern"), f"must be a regular expression ({error})")


def _time_errors(spec: ConsumerGroupSpec) -> Iterator[FieldError]:
    """Yield an error for each time that a sidecar cannot measure; one of zero is shorter than its shortest."""
    membership, delivery = spec.membership, spec.delivery
    for path, least_s, seconds in (
        (("membership", "rebalanceTimeoutSeconds"), 1, membership.rebalance_timeout_seconds),
        (("membership", "processingTimeoutSeconds"), 1, membership.processing_timeout_seconds),
        (("offsets", "commit", "intervalSeconds"), 1, spec.offsets.commit.interval_seconds),
        (("sidecar", "terminationDrainSeconds"), 1, spec.sidecar.termination_drain_seconds),
        (("delivery", "timeout"), 0.001, _seconds_of(delivery.timeout)),
        (("delivery", "backoffDelay"), 0, _seconds_of(delivery.backoff_delay)),
    ):
        if not least_s <= seconds <= TIME_S_MAX:
            yield FieldError(("spec", *path), f"must be from {least_s} s to {TIME_S_MAX} s")


def _seconds_of(duration: str) -> float:
    """Return the length of a duration; infinite if a sidecar does not read it: it has too many digits, or none."""
    found = DURATION.fullmatch(duration)
    if found is None:
        return math.inf
    hours, minutes, seconds = found.groups(default="0")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _property_errors(spec: ConsumerGroupSpec) -> Iterator[FieldError]:
    sasl = spec.auth.sasl
    for key, value in spec.config.items():
        # Isolation is a flag of the sidecar, for every backend.
        if key == ISOLATION:
            continue
        message = property_problem(key, value)
        if spec.speaks_rota:
            message = (
                "applies to Kafka brokers only; remove it, because bootstrapServers are rota:// addresses"
            )
        elif sasl is not None and sasl.mechanism in WITHOUT_LIBRDKAFKA:
            message = f"is a property of librdkafka, which is not used with {sasl.mechanism}; remove it"
        if message:
            yield FieldError(("spec", "config", key), message)


def _cluster_errors(spec: ConsumerGroupSpec) -> Iterator[FieldError]:
    auth = spec.auth
    if spec.speaks_rota:
        for name, part in (("tls", auth.tls), ("sasl", auth.sasl)):
            if part is not None:
                yield FieldError(
                    ("spec", "auth", name),
                    "applies to Kafka brokers only; remove it, because bootstrapServers are rota:// addresses",
                )


def _spark_errors(
    spec: ConsumerGroupSpec, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[FieldError]:
    """Yield the fields that mean nothing for a group with SparkApplications, or for one without."""
    if not spec.spark.enabled:
        for leaf in _differences(given["spark"], defaults["spark"], ("spark",)):
            yield FieldError(("spec", *leaf), "has no effect without spark.enabled; remove it")
        return
    for path, reason in NOT_FOR_SPARK.items():
        for leaf in _differences(_value_at(given, path), _value_at(defaults, path), path):
            yield FieldError(
                ("spec", *leaf), f"has no effect on SparkApplications, because {reason}; remove it"
            )
    if (mode := spec.offsets.commit.mode) not in SPARK_COMMIT_MODES:
        yield FieldError(
            ("spec", "offsets", "commit", "mode"),
            f"must be one of {', '.join(SPARK_COMMIT_MODES)} for SparkApplications, whose drivers commit; got {mode}",
        )


def _with_defaults(spec: ConsumerGroupSpec) -> Mapping[str, Any]:
    """Return the spec with defaults for all optional fields."""
    needed = {
        "bootstrap_servers",
        "topics",
        "topic_pattern",
        "scale_target_ref",
        "coordination",
        "coordinator_address",
    }
    settings = {name: value for name, value in spec if name in needed}
    return ConsumerGroupSpec.model_construct(**settings).model_dump(mode="json", by_alias=True)


def _value_at(held: Mapping[str, Any], path: Path) -> Any:  # noqa: ANN401  whatever is there
    found: Any = held
    for name in path:
        found = found[name]
    return found


def _differences(given: object, defaults: object, path: Path) -> Iterator[Path]:
    """Yield the paths of the fields that differ."""
    if isinstance(given, dict) and isinstance(defaults, dict):
        for name, value in given.items():
            yield from _differences(value, defaults.get(name), (*path, name))
    elif given != defaults:
        yield path
