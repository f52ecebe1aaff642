"""The version of each message that we speak: one each, the same for every broker, and refused where it is unknown."""

from typing import NamedTuple

from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
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
    MetadataResponse,
)
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


class Spoken(NamedTuple):
    """How a request is written, and what its answer is read as."""

    version: int
    response: type[ApiMessage]


# What a member cannot do without. Instance ids came to each of these late, `require_stable` with OffsetFetch 7.
MEMBERSHIP: dict[type[ApiMessage], Spoken] = {
    group.JoinGroupRequest: Spoken(9, group.JoinGroupResponse),
    group.SyncGroupRequest: Spoken(5, group.SyncGroupResponse),
    group.HeartbeatRequest: Spoken(4, group.HeartbeatResponse),
    group.LeaveGroupRequest: Spoken(5, group.LeaveGroupResponse),
    group.OffsetCommitRequest: Spoken(9, group.OffsetCommitResponse),
    group.OffsetFetchRequest: Spoken(8, group.OffsetFetchResponse),
    # The application's producer sends it, in the name of our member.
    TxnOffsetCommitRequest: Spoken(3, TxnOffsetCommitResponse),
    FindCoordinatorRequest: Spoken(4, FindCoordinatorResponse),
    # Topic ids came with 10.
    MetadataRequest: Spoken(12, MetadataResponse),
}
# What is asked before we know what a broker knows, or only where it knows it.
OTHERS: dict[type[ApiMessage], Spoken] = {
    ApiVersionsRequest: Spoken(3, ApiVersionsResponse),
    SaslHandshakeRequest: Spoken(1, SaslHandshakeResponse),
    SaslAuthenticateRequest: Spoken(2, SaslAuthenticateResponse),
    ListGroupsRequest: Spoken(5, ListGroupsResponse),
    DescribeGroupsRequest: Spoken(5, DescribeGroupsResponse),
}
SPOKEN = {**MEMBERSHIP, **OTHERS}
# The first release that knows all of MEMBERSHIP.
OLDEST_KAFKA = "3.7"


def unknown_to(answer: ApiMessage) -> list[str]:
    """What a member needs and the broker lacks, by its answer to ApiVersions."""
    known = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}
    return [
        f"{request.name.removesuffix('Request')} {spoken.version}"
        for request, spoken in MEMBERSHIP.items()
        if spoken.version not in known.get(request.API_KEY, ())
    ]
