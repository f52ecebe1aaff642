"""How a call of the application is refused: a gRPC status and one sentence. Raised everywhere here, sent by `gate`."""

import grpc


class Refusal(Exception):
    """The call ends with this; nothing else of it was done."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def invalid_argument(message: str) -> Refusal:
    """It can be nothing that this version knows."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> Refusal:
    """It could be right at another time."""
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)


def resource_exhausted(message: str) -> Refusal:
    """It would exceed a bound."""
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
