"""
Why a coordinator does not describe a group: by what its call has failed with, in words that stay the same while the reason does.

`engines.rota` passes the code and the details of gRPC in; `status.conditions` shows what comes out.
"""

import re
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb

UNAUTHENTICATED, UNAVAILABLE = "UNAUTHENTICATED", "UNAVAILABLE"
# What OpenSSL says of a certificate, and what gRPC says of its names. Addresses and times are left out.
VERIFY_FAILED = re.compile(r"CERTIFICATE_VERIFY_FAILED(?:: (?P<why>[A-Za-z ,-]+))?")
NOT_NAMED = re.compile(
    r"[Pp]eer name (?P<name>\S+) is not in peer certificate|Hostname Verification Check failed"
)
NO_TLS = "WRONG_VERSION_NUMBER"


class CoordinatorProblem(NamedTuple):
    """A failed watch of a group."""

    # The coordinator has answered, and refuses the operator.
    is_refusal: bool = False
    # Empty: it does not answer.
    message: str = ""


NO_ANSWER = CoordinatorProblem()
NOT_AUTHORIZED = CoordinatorProblem(
    is_refusal=True,
    message="GROUP_AUTHORIZATION_FAILED: the operator is not an administrator there, or pods of this namespace may not be members "
    "of the group; in the coordinator's tokens file, grant admin:* and consume:* to the operator, or the group to the namespace",
)


def problem_of_call(code: str, details: str) -> CoordinatorProblem:
    """Return the problem of a call that gRPC has ended with this status."""
    if code == UNAUTHENTICATED:
        return CoordinatorProblem(is_refusal=True, message=details)
    if code != UNAVAILABLE:
        return NO_ANSWER
    if failed := VERIFY_FAILED.search(details):
        why = (failed["why"] or "").strip() or "it is not issued by an authority of --tls-ca"
        return CoordinatorProblem(message=f"its certificate is not trusted: {why}")
    if NOT_NAMED.search(details):
        return CoordinatorProblem(message="its certificate is not issued for the name of its address")
    if NO_TLS in details:
        return CoordinatorProblem(message="it has no TLS")
    return NO_ANSWER


def problem_of_response(error: pb.ErrorCode.ValueType) -> CoordinatorProblem:
    """Return the problem of a group that a coordinator answers for with an error."""
    return NOT_AUTHORIZED if error == pb.GROUP_AUTHORIZATION_FAILED else NO_ANSWER
