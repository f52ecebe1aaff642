"""
Parameters of Kafka's clients with their defaults, and why Rota's default is another one. Read by `generate_parameters_reference`.

Names and defaults are those of Apache Kafka 4.3; where kafka-python's default is another one, it is given too, and where only
kafka-python has the parameter, it has that client's name. Rota's names and defaults are read from the code.
"""

from typing import Any, NamedTuple

SAME: Any = object()


class Parameter(NamedTuple):
    """A parameter that Rota takes, under the same name."""

    # With Kafka's points; with underscores if only Python's clients have it.
    name: str
    # None: no default, or one that is empty.
    default: object
    # Why Rota's default differs. Empty: it does not.
    why: str = ""
    # kafka-python's default; SAME: Kafka's.
    kafka_python: Any = SAME
    # Where a ConsumerGroup has it, unless a setting of the sidecar's flag says so.
    manifest: str = ""
    # Rota's default in words, where the code derives it.
    ours: object = SAME

    @property
    def setting(self) -> str:
        """The name of the setting in the SDK."""
        return self.name.replace(".", "_")


NO_DEFAULT = "a name of one's own is of use"
DERIVED = "TLS follows from the files, and the login from sasl_mechanism"
OAUTH = (
    Parameter("sasl_oauth_token_provider", None),
    Parameter("sasl.oauthbearer.token.endpoint.url", None, manifest="auth.sasl.oauthbearer.tokenEndpointUrl"),
    Parameter("sasl.oauthbearer.client.id", None, manifest="auth.sasl.oauthbearer.clientIdSecret"),
    Parameter("sasl.oauthbearer.client.secret", None, manifest="auth.sasl.oauthbearer.clientSecretSecret"),
    Parameter("sasl.oauthbearer.scope", None, manifest="auth.sasl.oauthbearer.scope"),
)
FILES = (
    Parameter("ssl_cafile", None, manifest="auth.tls"),
    Parameter("ssl_certfile", None, manifest="auth.tls"),
    Parameter("ssl_keyfile", None, manifest="auth.tls"),
)
CONSUMER = (
    Parameter("bootstrap.servers", None, kafka_python="localhost", manifest="bootstrapServers"),
    Parameter("group.id", None, manifest="groupId"),
    Parameter("group.instance.id", None, manifest="membership.static"),
    Parameter(
        "client.id",
        None,
        "tools and logs show a name",
        kafka_python="kafka-python",
        manifest="the pod's name",
    ),
    Parameter("client.rack", None, manifest="membership.rackTopologyKey"),
    Parameter("key.deserializer", None),
    Parameter("value.deserializer", None),
    Parameter(
        "auto.offset.reset",
        "latest",
        "`latest` skips the records that were written before a partition's first commit, without a trace",
    ),
    Parameter("enable.auto.commit", default=True, manifest="offsets.commit.mode"),
    Parameter("auto.commit.interval.ms", 5_000),
    Parameter("isolation.level", "read_uncommitted"),
    Parameter("max.poll.records", 500),
    Parameter("max.poll.interval.ms", 300_000),
    Parameter("session.timeout.ms", 45_000),
    Parameter("heartbeat.interval.ms", 3_000, ours=3_000),
    Parameter(
        "partition.assignment.strategy",
        "range, cooperative-sticky",
        "partitions that stay with their member are not interrupted by a rebalance; a group that still has `range` members offers both",
        kafka_python="range, roundrobin",
    ),
    Parameter("fetch.min.bytes", 1, manifest="config (Kafka)"),
    Parameter(
        "fetch.max.bytes",
        52_428_800,
        "the sidecar's memory is bounded, and a message of Rota's servers has 4 MiB",
        manifest="config (Kafka)",
    ),
    Parameter(
        "fetch.max.wait.ms",
        500,
        "the first record ends the wait: a longer one saves requests; at Kafka a new partition waits for the fetch before it. "
        "Kafka's 500 ms hold with fetch.min.bytes above 1",
        manifest="config (Kafka)",
    ),
    Parameter(
        "max.partition.fetch.bytes",
        1_048_576,
        "the sidecar's memory is bounded; a larger batch is returned all the same",
        manifest="config (Kafka)",
        ours="1048576; 524288 in a response of Kafka",
    ),
    Parameter("metadata.max.age.ms", 300_000, "new partitions and topics of a pattern are consumed sooner"),
    Parameter(
        "request.timeout.ms",
        30_000,
        ours="30000; 15000 for records of Kafka",
        why="a broker that hangs is noticed sooner",
    ),
    Parameter("retry.backoff.ms", 100),
    Parameter("retry.backoff.max.ms", 1_000),
    Parameter("reconnect.backoff.ms", 50, manifest="config (Kafka)", ours=50),
    Parameter("reconnect.backoff.max.ms", 1_000, kafka_python=30_000, manifest="config (Kafka)", ours=1_000),
    Parameter("connections.max.idle.ms", 540_000, manifest="config (Kafka)", ours=540_000),
    Parameter("default.api.timeout.ms", 60_000),
    Parameter("consumer_timeout_ms", float("inf")),
    Parameter("security.protocol", "PLAINTEXT", DERIVED, manifest="auth", ours="derived"),
    *FILES,
    Parameter(
        "sasl.mechanism",
        "GSSAPI",
        "a login is asked for by its mechanism",
        kafka_python=None,
        manifest="auth.sasl",
    ),
    Parameter("sasl_username", None, manifest="auth.sasl"),
    Parameter("sasl_password", None, manifest="auth.sasl"),
    *OAUTH,
    Parameter(
        "sasl.kerberos.service.name",
        None,
        kafka_python="kafka",
        manifest="auth.sasl.kerberos",
        why="the name in the principals of most brokers",
    ),
    Parameter("sasl.kerberos.principal", None, manifest="auth.sasl.kerberos"),
    Parameter("sasl.kerberos.keytab", None, manifest="auth.sasl.kerberos"),
)
PRODUCER = (
    Parameter("bootstrap.servers", None, kafka_python="localhost"),
    Parameter("client.id", None, "servers and proxies log a name"),
    Parameter("key.serializer", None),
    Parameter("value.serializer", None),
    Parameter("acks", "all", kafka_python=-1),
    Parameter(
        "enable.idempotence",
        default=True,
        ours="true, with acks=all",
        why="with lower acks nothing could be detected",
    ),
    Parameter("transactional.id", None),
    Parameter("transaction.timeout.ms", 60_000),
    Parameter("compression.type", "none", kafka_python=None, ours="none"),
    Parameter(
        "batch.size",
        16_384,
        "a batch costs the server and the reader nearly the same whatever its size: larger ones raise the rate, and linger.ms bounds "
        "the wait",
    ),
    Parameter("linger.ms", 5, kafka_python=0),
    Parameter("buffer.memory", 33_554_432),
    Parameter("max.block.ms", 60_000),
    Parameter("max.request.size", 1_048_576),
    Parameter("max.in.flight.requests.per.connection", 5),
    Parameter("retries", 2_147_483_647, kafka_python=float("inf")),
    Parameter("retry.backoff.ms", 100),
    Parameter("retry.backoff.max.ms", 1_000),
    Parameter("request.timeout.ms", 30_000),
    Parameter("delivery.timeout.ms", 120_000),
    Parameter("metadata.max.age.ms", 300_000),
    Parameter("partitioner", None, kafka_python="DefaultPartitioner"),
    Parameter("reconnect.backoff.ms", 50, ours=50),
    Parameter("reconnect.backoff.max.ms", 1_000, kafka_python=30_000, ours=1_000),
    Parameter("connections.max.idle.ms", 540_000, ours=540_000),
    Parameter("security.protocol", "PLAINTEXT", DERIVED, ours="derived"),
    *(each._replace(manifest="") for each in FILES),
    Parameter(
        "sasl.mechanism",
        "GSSAPI",
        "a login is asked for by its mechanism; GSSAPI is in kafka_config",
        kafka_python=None,
    ),
    Parameter("sasl_username", None),
    Parameter("sasl_password", None),
    *(each._replace(manifest="") for each in OAUTH),
)
