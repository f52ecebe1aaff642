"""
Properties of Kafka's client that `--config` may set, and those that the sidecar sets itself. Used by `flag_types`.

The client is librdkafka, which knows some properties by two names; an owned property is owned by both. The operator refuses the
same ones in `spec.config`.
"""

import re

# Delivery depends on these, or a flag sets them; librdkafka accepts max.poll.records and ignores it.
OWNED = frozenset(
    {
        "acks", "allow.auto.create.topics", "auto.offset.reset", "bootstrap.servers", "check.crcs", "client.id", "client.rack",
        "debug", "default.topic.config", "heartbeat.interval.ms", "isolation.level", "max.poll.interval.ms", "max.poll.records",
        "metadata.broker.list", "on_commit", "opaque", "partition.assignment.strategy", "partitioner", "request.required.acks",
        "session.timeout.ms",
    }
)  # fmt: skip
OWNED_PREFIXES = (
    "auto.commit.", "enable.", "group.", "https.", "interceptors", "log", "offset.store.", "plugin.", "sasl.", "security.",
    "ssl.", "transaction",
)  # fmt: skip
CALLBACK = re.compile(r".*_cb")
# Begins like the owned ones, and may be set.
FREE = frozenset({"enable.metrics.push", "enable.random.seed"})
KEY = re.compile(r"[a-z][a-z0-9._]{0,99}")


def is_owned(key: str) -> bool:
    """Return True for a property that the sidecar sets itself."""
    if key in FREE:
        return False
    return key in OWNED or key.startswith(OWNED_PREFIXES) or CALLBACK.fullmatch(key) is not None


def owned_shown() -> str:
    """Return the owned properties as a list for people."""
    return ", ".join([*sorted(OWNED), *(f"{prefix}*" for prefix in OWNED_PREFIXES), "*_cb"])
