"""Requests from bytes: what cannot be decoded is a value, a method's handler is wrapped once, unknown methods are not kept."""

import asyncio
from typing import NamedTuple, cast

import grpc
import pytest
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.validation_interceptor import Handler, UndecodableRequest, ValidationInterceptor, decode


class Call(NamedTuple):
    """The details of a call that an interceptor reads."""

    method: str


class Counting(ValidationInterceptor):
    """Counts the handlers that it wraps."""

    def __init__(self) -> None:
        super().__init__()
        self.wrapped_handlers = 0

    @override
    def wrapped(self, handler: Handler) -> Handler:
        self.wrapped_handlers += 1
        return handler


def test_a_request_is_decoded_or_keeps_its_number() -> None:
    request = pb.SessionRequest(request_id=300)
    data = request.SerializeToString()
    assert decode(pb.SessionRequest.FromString, data) == request
    assert decode(pb.SessionRequest.FromString, data + b"\xff") == UndecodableRequest(300)
    assert decode(pb.SessionRequest.FromString, b"\xff" * 20) == UndecodableRequest(0)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_handler_is_wrapped_once_and_an_unknown_method_has_none(is_known: bool) -> None:
    handler: Handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)

    async def find(_: grpc.HandlerCallDetails) -> Handler | None:
        return handler if is_known else None

    async def run() -> None:
        interceptor = Counting()
        details = cast("grpc.HandlerCallDetails", Call("/rota.Service/Method"))
        for _ in range(2):
            assert await interceptor.intercept_service(find, details) is (handler if is_known else None)
        assert interceptor.wrapped_handlers == int(is_known)

    asyncio.run(run())
