"""The failures of calls to Rota's servers by status and details; those of real processes are in the other modules."""

import grpc
import grpc.aio
import pytest

from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.rota.connection import LOST_WHILE_WRITING, Credentials, RpcClient, is_lost

CLIENT = RpcClient("127.0.0.1:7070", Credentials(), 1.0)
Code = grpc.StatusCode


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_each_status_is_a_failure_that_names_the_address(code: grpc.StatusCode) -> None:
    failure = CLIENT.failure(code, "why")
    assert isinstance(failure, Unreachable | Refused)
    assert "127.0.0.1:7070" in str(failure)


def test_a_connection_that_is_lost_while_a_message_is_written_is_lost_like_any_other() -> None:
    """gRPC calls that an internal error, though no server has said so."""
    assert is_lost(Code.INTERNAL, LOST_WHILE_WRITING)
    assert str(CLIENT.failure(Code.INTERNAL, LOST_WHILE_WRITING)).startswith(
        "127.0.0.1:7070 cannot be reached"
    )
    assert not is_lost(Code.INTERNAL, "division by zero")
    assert "see its log" in str(CLIENT.failure(Code.INTERNAL, "division by zero"))
