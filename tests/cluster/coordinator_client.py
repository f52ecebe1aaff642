"""
A client of a release's coordinator, from outside of the cluster: over TLS, by the identity of the operator.

It trusts the authority that the release's Secret has when it connects.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import grpc

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import STABLE, Description, description_of
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2 import FetchOffsetsRequest
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.cluster.released import PARTITIONS, RELEASE, Release
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.orders import GROUP

PORT = 7070


class CoordinatorClient(NamedTuple):
    """An administrator of the coordinator."""

    channel: grpc.Channel
    metadata: tuple[tuple[str, str | bytes], ...]
    # Of the orders.
    group_id: str

    def description(self, members: int = 0) -> Description:
        """Describe the group of the orders; wait until so many members have all partitions, 0: now."""
        responses = AdminStub(self.channel).WatchGroup(
            WatchGroupRequest(group_id=self.group_id), timeout=WITHIN_S, metadata=self.metadata
        )
        found = next(
            each for each in map(description_of, responses) if not members or is_settled(each, members)
        )
        responses.cancel()
        return found

    def committed(self) -> Mapping[Partition, int]:
        """Committed offsets of the group."""
        request = FetchOffsetsRequest(group_id=self.group_id, all=True)
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


def token(release: Release, account: str, pod: Mapping[str, Any]) -> str:
    """Return a token as the kubelet would ask for one for a pod of the release."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}")
    return release.cluster.kubectl(
        "create", "token", account, f"--namespace={release.namespace}", "--audience=rota", *bound
    ).strip()


@contextmanager
def connected(release: Release) -> Iterator[CoordinatorClient]:
    """Connect to the release's only coordinator as one of the operator's pods."""
    operator = release.pods(release.namespace, "app.kubernetes.io/component=operator")[0]
    [server] = release.pods(release.namespace, "app.kubernetes.io/component=coordinator")
    trusted = release.secret("rota-coordinator-tls")["ca.crt"]
    bearer = token(release, "rota-operator", operator)
    with ExitStack() as stack:
        port = stack.enter_context(release.cluster.forward(server["status"]["podIP"], PORT))
        channel = grpc.secure_channel(
            f"127.0.0.1:{port}",
            grpc.ssl_channel_credentials(trusted),
            options=(("grpc.ssl_target_name_override", f"{RELEASE}-coordinator.{release.namespace}"),),
        )
        yield CoordinatorClient(
            stack.enter_context(channel),
            (("authorization", f"Bearer {bearer}"),),
            f"{release.shop}.{GROUP}",
        )


def serves_by(cluster: Cluster, host: str, port: int, name: str, authority: bytes) -> bool:
    """Return whether a server's certificate is issued by an authority, for this name."""
    context = ssl.create_default_context(cadata=authority.decode())
    with ExitStack() as stack:
        outside = stack.enter_context(cluster.forward(host, port))
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", outside), timeout=WITHIN_S))
        try:
            stack.enter_context(context.wrap_socket(connection, server_hostname=name))
        except ssl.SSLCertVerificationError:
            return False
    return True
