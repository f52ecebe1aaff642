"""
Chooses the client that reads and writes Kafka's records: librdkafka, or the sidecar's own where librdkafka lacks the login.

Called by `wiring.py` before either is loaded. Both pass the same contract tests; librdkafka decodes beside Python's lock.
"""

# Logins of every librdkafka. It has GSSAPI only where it was built with Cyrus SASL, and the wheels of confluent-kafka are not.
LIBRDKAFKA_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"})


def uses_python_client(mechanism: str) -> bool:
    """Return whether records are read and written by `python_client`, for a SASL mechanism; empty: no login."""
    return bool(mechanism) and mechanism not in LIBRDKAFKA_MECHANISMS


def property_refusal(mechanism: str) -> str:
    """Return why a property of librdkafka is refused with a SASL mechanism that it does not have."""
    return f"librdkafka, whose properties these are, has no login with {mechanism} and is not used; omit them"
