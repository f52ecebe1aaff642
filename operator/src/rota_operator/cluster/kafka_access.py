"""
Credentials of the operator for Kafka clusters: the list of `--kafka-clusters`, and the files beside it.

The list is read once, at the start; the files of a cluster are in the folder of its name beside the list, a Secret of the
operator's own namespace, and are read anew for each reconcile, so that a group's connections follow a changed Secret.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import yaml

from rota_operator.plan.kafka_clusters import NO_CLUSTERS, KafkaCluster, KafkaClusters, find_cluster
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import InvalidSpec, parse_model

LIBRARY = "confluent_kafka"
LIST = "clusters.yaml"
# Files of a cluster, with the properties of librdkafka that they are.
CA = ("ca.crt", "ssl.ca.pem")
CLIENT_CERTIFICATE = (("tls.crt", "ssl.certificate.pem"), ("tls.key", "ssl.key.pem"))
LOGIN = (("username", "sasl.username"), ("password", "sasl.password"))
# librdkafka asks the token endpoint itself, and renews its tokens.
CLIENT = (("client-id", "sasl.oauthbearer.client.id"), ("client-secret", "sasl.oauthbearer.client.secret"))
ENDPOINT_CA = ("token-endpoint-ca.crt", "https.ca.pem")


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Access of the operator to one group at its Kafka cluster. Invariant: either `properties` or `problem` is empty."""

    # Of librdkafka; empty: it does not.
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # Why not; empty too where the records are not in Kafka.
    problem: str = ""


NO_ACCESS = KafkaAccess()


class InvalidClusters(Exception):
    """The list of Kafka clusters is unusable; the message has the path and the reason."""


class KafkaCredentials:
    """The Kafka clusters that the operator has credentials for."""

    def __init__(self, clusters: KafkaClusters = NO_CLUSTERS, folder: Path = Path()) -> None:
        self._clusters = clusters
        self._folder = folder

    def access(self, spec: ConsumerGroupSpec, namespace: str, group_id: str) -> KafkaAccess:
        """Return how to read a group, with the credentials as they are now."""
        if spec.speaks_rota:
            return NO_ACCESS
        cluster, problem = find_cluster(self._clusters, spec, namespace, group_id)
        if cluster is None:
            return KafkaAccess(problem=problem)
        try:
            return KafkaAccess(tuple(sorted(self._properties(cluster).items())))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            name = Path(getattr(error, "filename", None) or "").name
            return KafkaAccess(
                problem=f"the operator cannot read the credentials of Kafka cluster {cluster.name} ({name}: {reason}); check "
                "its Secret in the operator's namespace"
            )

    def _properties(self, cluster: KafkaCluster) -> Mapping[str, str]:
        """Return the properties of a client. Raises OSError, ValueError."""
        folder = self._folder / cluster.name
        found = {
            "bootstrap.servers": ",".join(cluster.bootstrap_servers),
            "client.id": "rota-operator",
            "security.protocol": ("sasl_" if cluster.sasl_mechanism else "")
            + ("ssl" if cluster.tls else "plaintext"),
        }
        if cluster.tls:
            found |= texts(folder, [CA]) if (folder / CA[0]).exists() else {"ssl.ca.location": "probe"}
            if (folder / CLIENT_CERTIFICATE[0][0]).exists():
                found |= texts(folder, CLIENT_CERTIFICATE)
        if cluster.token_endpoint_url:
            found |= _token_properties(cluster, folder)
        elif cluster.sasl_mechanism:
            found |= {"sasl.mechanism": cluster.sasl_mechanism, **texts(folder, LOGIN)}
        return found


def _token_properties(cluster: KafkaCluster, folder: Path) -> Mapping[str, str]:
    """Return the properties of a login with bearer tokens. Raises OSError, ValueError."""
    found = {
        "sasl.mechanism": cluster.sasl_mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": cluster.token_endpoint_url,
        **texts(folder, CLIENT),
    }
    if cluster.scope:
        found["sasl.oauthbearer.scope"] = cluster.scope
    if (folder / ENDPOINT_CA[0]).exists():
        found |= texts(folder, [ENDPOINT_CA])
    return found


def texts(folder: Path, files: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Read files, by the names of their properties. Raises OSError, ValueError."""
    return {name: (folder / file).read_text().rstrip("\r\n") for file, name in files}


def read_credentials(folder: Path | None) -> KafkaCredentials:
    """Read the list of clusters. Raises InvalidClusters."""
    if folder is None:
        return KafkaCredentials()
    if find_spec(LIBRARY) is None:
        raise InvalidClusters(
            "--kafka-clusters requires confluent-kafka, which is not installed; install rota-operator[kafka]"
        )
    path = folder / LIST
    try:
        value = yaml.safe_load(path.read_text())
        clusters = parse_model(KafkaClusters, value, (LIST,))
    except OSError as error:
        raise InvalidClusters(f"cannot read {path} of --kafka-clusters ({error.strerror})") from None
    except (ValueError, yaml.YAMLError) as error:
        raise InvalidClusters(
            f"{path} of --kafka-clusters must be YAML ({' '.join(str(error).split())})"
        ) from None
    except InvalidSpec as error:
        raise InvalidClusters(f"--kafka-clusters: {error}") from None
    return KafkaCredentials(clusters, folder)
