"""The version of each message that we speak: one each, the same for every broker, and refused where it is unknown."""

from collections.abc import Mapping
from typing import NamedTuple

from kafka.protocol.admin import (
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import group
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from rota_sidecar.engines.kafka import metadata


class MessageVersion(NamedTuple):
    """How a request is written, and what its answer is read as."""

    version: int
    response: type[ApiMessage] | type[metadata.Metadata]


# What a member cannot do without. Instance ids came to each of these late, `require_stable` with OffsetFetch 7.
MEMBERSHIP: dict[type[ApiMessage], MessageVersion] = {
    group.JoinGroupRequest: MessageVersion(9, group.JoinGroupResponse),
    group.SyncGroupRequest: MessageVersion(5, group.SyncGroupResponse),
    group.HeartbeatRequest: MessageVersion(4, group.HeartbeatResponse),
    group.LeaveGroupRequest: MessageVersion(5, group.LeaveGroupResponse),
    group.OffsetCommitRequest: MessageVersion(9, group.OffsetCommitResponse),
    group.OffsetFetchRequest: MessageVersion(8, group.OffsetFetchResponse),
    # The application's producer sends it, in the name of our member.
    TxnOffsetCommitRequest: MessageVersion(3, TxnOffsetCommitResponse),
    FindCoordinatorRequest: MessageVersion(4, FindCoordinatorResponse),
    # Topic ids came with 10.
    MetadataRequest: MessageVersion(metadata.VERSION, metadata.Metadata),
}
# What is asked before we know what a broker knows, or only where it knows it.
OTHERS: dict[type[ApiMessage], MessageVersion] = {
    ApiVersionsRequest: MessageVersion(3, ApiVersionsResponse),
    SaslHandshakeRequest: MessageVersion(1, SaslHandshakeResponse),
    SaslAuthenticateRequest: MessageVersion(2, SaslAuthenticateResponse),
    # Since Kafka 3.8: with the types of groups.
    ListGroupsRequest: MessageVersion(5, ListGroupsResponse),
}
VERSIONS = {**MEMBERSHIP, **OTHERS}
# The first release that knows all of MEMBERSHIP.
OLDEST_KAFKA = "3.7"


Known = Mapping[int, range]
"""The versions that a broker knows, by the number of the message."""


def known_by(answer: ApiMessage) -> Known:
    """By a broker's answer to ApiVersions."""
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}


def is_known(kind: type[ApiMessage], known: Known) -> bool:
    """Whether the broker knows the version that we speak."""
    return VERSIONS[kind].version in known.get(kind.API_KEY, ())


def missing_in(known: Known) -> list[str]:
    """What a member needs and the broker lacks."""
    return [
        f"{kind.name.removesuffix('Request')} {message_version.version}"
        for kind, message_version in MEMBERSHIP.items()
        if not is_known(kind, known)
    ]
