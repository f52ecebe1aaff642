"""How a call of the application is refused: a gRPC status and one sentence. Raised everywhere here, sent by `gate`."""

import grpc


class Refusal(Exception):
    """The call ends with this; nothing else of it was done."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def malformed(sentence: str) -> Refusal:
    """It can be nothing that this version knows."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, sentence)


def out_of_turn(sentence: str) -> Refusal:
    """It could be right at another time."""
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, sentence)


def too_much(sentence: str) -> Refusal:
    """It would exceed a bound."""
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
