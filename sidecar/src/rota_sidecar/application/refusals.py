"""Refusals of the application's calls: a gRPC status and a message. Sent by `validation_interceptor`."""

import grpc


class Refusal(Exception):
    """The status with which a call ends; a refused call has no effect."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def invalid_argument(message: str) -> Refusal:
    """Return a refusal of a request that is invalid in any state."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> Refusal:
    """Return a refusal of a request that is invalid in the current state."""
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)


def resource_exhausted(message: str) -> Refusal:
    """Return a refusal of a request that would exceed a limit."""
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
