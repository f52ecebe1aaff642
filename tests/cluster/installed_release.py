"""
A release of the chart in the test cluster, with the orders example beside it: how tests look at both.

The coordinator is asked over TLS, by the identity of the operator, from outside of the cluster.
"""

import base64
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import STABLE, Description, description_of
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2 import FetchOffsetsRequest
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.support import helm
from tests.support.cluster import Cluster
from tests.support.cluster.cluster import statuses_of
from tests.support.cluster.images import Image
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import ENRICHER, GROUP, orders
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS as EXAMPLE_COORDINATOR

RELEASE, NAMESPACE, APPLICATIONS = "rota", "disturbed", "disturbed-shop"
COORDINATOR = f"rota-coordinator.{NAMESPACE}"
COORDINATOR_PORT = 7070
COORDINATOR_ADDRESS = f"{COORDINATOR}:{COORDINATOR_PORT}"
GROUP_ID = f"{APPLICATIONS}.{GROUP}"
# Of the orders' topic.
PARTITIONS = 12
WITHIN_S = 120
# A busy machine may freeze a member for longer than the 6 s of the example.
SESSION_S = 60


class Installed(NamedTuple):
    """The release, and its user's kubectl."""

    cluster: Cluster
    # Of the command line: applications run in it.
    application: Image

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm for the release's namespace."""
        return helm.prepare().run(*arguments, "--namespace", NAMESPACE, kubeconfig=self.cluster.kubeconfig)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace of the applications."""
        return self.cluster.kubectl("--namespace", APPLICATIONS, *arguments)

    def pods(self, namespace: str, selector: str = "") -> list[Mapping[str, Any]]:
        """Pods that are not being deleted."""
        found = self.cluster.get("pods", namespace=namespace, selector=selector)["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def restarts(self) -> Mapping[str, int]:
        """Restarts of each container of the release and of the applications, by NAMESPACE/POD/CONTAINER."""
        return {
            f"{namespace}/{pod['metadata']['name']}/{each['name']}": each["restartCount"]
            for namespace, selector in ((NAMESPACE, "app.kubernetes.io/component"), (APPLICATIONS, ""))
            for pod in self.pods(namespace, selector)
            for each in statuses_of(pod)
        }

    def wait_group(self, condition: str, name: str = GROUP) -> None:
        """Wait until a ConsumerGroup is so, in the words of `kubectl wait`; what it is instead is raised."""
        group = f"consumergroup/{name}"
        try:
            self.cluster.wait(group, condition, namespace=APPLICATIONS, within_s=WITHIN_S)
        except KubectlFailed as error:
            raise AssertionError(f"{error}: {self.cluster.get(group, namespace=APPLICATIONS)}") from None

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret of the release."""
        found = self.cluster.get(f"secret/{name}", namespace=NAMESPACE)
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    def token(self, account: str, pod: Mapping[str, Any]) -> str:
        """Return a token as the kubelet would ask for one for a pod of the release."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}")
        return self.cluster.kubectl(
            "create", "token", account, f"--namespace={NAMESPACE}", "--audience=rota", *bound
        ).strip()

    @contextmanager
    def coordinator(self) -> Iterator["CoordinatorClient"]:
        """A client of the coordinator, as one of the operator's pods; it trusts the authority of now."""
        operator = self.pods(NAMESPACE, "app.kubernetes.io/component=operator")[0]
        [server] = self.pods(NAMESPACE, "app.kubernetes.io/component=coordinator")
        trusted = self.secret("rota-coordinator-tls")["ca.crt"]
        token = self.token("rota-operator", operator)
        with ExitStack() as stack:
            port = stack.enter_context(self.cluster.forward(server["status"]["podIP"], COORDINATOR_PORT))
            channel = grpc.secure_channel(
                f"127.0.0.1:{port}",
                grpc.ssl_channel_credentials(trusted),
                options=(("grpc.ssl_target_name_override", COORDINATOR),),
            )
            yield CoordinatorClient(stack.enter_context(channel), (("authorization", f"Bearer {token}"),))

    def serves_by(self, host: str, port: int, name: str, authority: bytes) -> bool:
        """Return whether a server's certificate is issued by an authority, for this name."""
        context = ssl.create_default_context(cadata=authority.decode())
        with ExitStack() as stack:
            outside = stack.enter_context(self.cluster.forward(host, port))
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", outside), timeout=WITHIN_S)
            )
            try:
                stack.enter_context(context.wrap_socket(connection, server_hostname=name))
            except ssl.SSLCertVerificationError:
                return False
        return True


class CoordinatorClient(NamedTuple):
    """An administrator of the coordinator."""

    channel: grpc.Channel
    metadata: tuple[tuple[str, str | bytes], ...]

    def description(self, members: int = 0) -> Description:
        """Describe the group of the orders; wait until so many members have all partitions, 0: now."""
        responses = AdminStub(self.channel).WatchGroup(
            WatchGroupRequest(group_id=GROUP_ID), timeout=WITHIN_S, metadata=self.metadata
        )
        found = next(
            each for each in map(description_of, responses) if not members or is_settled(each, members)
        )
        responses.cancel()
        return found

    def committed(self) -> Mapping[Partition, int]:
        """Committed offsets of the group."""
        request = FetchOffsetsRequest(group_id=GROUP_ID, all=True)
        stub = CoordinatorStub(self.channel)
        found = stub.FetchOffsets(request, timeout=WITHIN_S, metadata=self.metadata)
        return {
            Partition(topic.name, each.index): each.offset
            for topic in found.topics
            for each in topic.partitions
        }


def is_settled(found: Description, members: int) -> bool:
    """Return whether this many members share all partitions."""
    owned = sum(len(each.partitions) for each in found.members)
    return (found.state, len(found.members), owned) == (STABLE, members, PARTITIONS)


def example(image: str, **variables: str) -> list[Manifest]:
    """The orders example at the release's coordinator, with variables of the application."""
    found: list[Manifest] = json.loads(
        json.dumps(orders(APPLICATIONS, image)).replace(EXAMPLE_COORDINATOR, COORDINATOR_ADDRESS)
    )
    for manifest in found:
        if manifest["kind"] == "ConsumerGroup":
            manifest["spec"]["membership"] = {"sessionTimeoutSeconds": SESSION_S}
        elif manifest["metadata"]["name"] == ENRICHER:
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            container["env"] = [{"name": name, "value": each} for name, each in variables.items()]
    return found
