"""The API version of each message: one version for all brokers; a broker that does not support it is rejected."""

from collections.abc import Mapping
from typing import NamedTuple

from kafka.protocol.admin import (
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import group
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from rota_sidecar.engines.kafka import metadata


class MessageVersion(NamedTuple):
    """The version of a request, and the type that decodes its response."""

    version: int
    response: type[ApiMessage] | type[metadata.Metadata]


# Messages that a member requires, in versions with instance ids; `require_stable` came with OffsetFetch 7.
MEMBERSHIP: dict[type[ApiMessage], MessageVersion] = {
    group.JoinGroupRequest: MessageVersion(9, group.JoinGroupResponse),
    group.SyncGroupRequest: MessageVersion(5, group.SyncGroupResponse),
    group.HeartbeatRequest: MessageVersion(4, group.HeartbeatResponse),
    group.LeaveGroupRequest: MessageVersion(5, group.LeaveGroupResponse),
    group.OffsetCommitRequest: MessageVersion(9, group.OffsetCommitResponse),
    group.OffsetFetchRequest: MessageVersion(8, group.OffsetFetchResponse),
    # Sent by the application's producer, with this member's id and generation.
    TxnOffsetCommitRequest: MessageVersion(3, TxnOffsetCommitResponse),
    FindCoordinatorRequest: MessageVersion(4, FindCoordinatorResponse),
    # Topic ids came with 10.
    MetadataRequest: MessageVersion(metadata.VERSION, metadata.Metadata),
}
# Messages of `python_client`. Every broker that supports all of MEMBERSHIP supports these versions too.
RECORDS: dict[type[ApiMessage], MessageVersion] = {
    # Topics by their ids, and the comparison of leader epochs.
    FetchRequest: MessageVersion(13, FetchResponse),
    ListOffsetsRequest: MessageVersion(7, ListOffsetsResponse),
    ProduceRequest: MessageVersion(9, ProduceResponse),
}
# Messages that are sent before the broker's versions are known, or only if the broker supports them.
OTHERS: dict[type[ApiMessage], MessageVersion] = {
    ApiVersionsRequest: MessageVersion(3, ApiVersionsResponse),
    SaslHandshakeRequest: MessageVersion(1, SaslHandshakeResponse),
    SaslAuthenticateRequest: MessageVersion(2, SaslAuthenticateResponse),
    # Kafka 3.8 and newer; has the types of groups.
    ListGroupsRequest: MessageVersion(5, ListGroupsResponse),
}
VERSIONS = {**MEMBERSHIP, **RECORDS, **OTHERS}
# The first release that supports all of MEMBERSHIP.
OLDEST_KAFKA = "3.7"


Known = Mapping[int, range]
"""The versions that a broker supports, by API key."""


def known_by(answer: ApiMessage) -> Known:
    """Return the versions in a broker's response to ApiVersions."""
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}


def is_known(kind: type[ApiMessage], known: Known) -> bool:
    """Return true if the broker supports the version used here."""
    return VERSIONS[kind].version in known.get(kind.API_KEY, ())


def missing_in(known: Known) -> list[str]:
    """Return the messages, with versions, that a member requires and the broker does not support."""
    return [
        f"{kind.name.removesuffix('Request')} {message_version.version}"
        for kind, message_version in MEMBERSHIP.items()
        if not is_known(kind, known)
    ]
