"""
Properties of Kafka's client that `spec.config` may set: the sidecar refuses the others, and its pod would restart for ever.

Used by `supported`. The lists are those of the sidecar, which a test compares: parts do not import each other.
"""

import re

# Delivery depends on these, or a flag of the sidecar sets them.
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
FREE = frozenset({"enable.metrics.push", "enable.random.seed"})
KEY = re.compile(r"[a-z][a-z0-9._]{0,99}")
LENGTH_MAX = 1_000
# SASL mechanisms that librdkafka does not have: another client reads records then, and has no properties.
WITHOUT_LIBRDKAFKA = frozenset({"GSSAPI"})


def property_problem(key: str, value: str) -> str:
    """Return why a property is refused, after its path; empty: the sidecar takes it."""
    if not KEY.fullmatch(key):
        return "must be a property of librdkafka: lowercase letters, digits, '.' and '_'"
    if key not in FREE and (key in OWNED or key.startswith(OWNED_PREFIXES) or CALLBACK.fullmatch(key)):
        return "is set by the sidecar itself; remove it, and use the corresponding field of the spec if there is one"
    if len(value) > LENGTH_MAX:
        return f"has {len(value)} characters; expected at most {LENGTH_MAX}"
    return ""
