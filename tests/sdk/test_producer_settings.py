"""Arguments of a producer: settings that go together, addresses, and records that can be sent at all."""

import subprocess
import sys
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.addresses import address_of
from rota.producer.options import Options, options_of
from rota.producer.pipeline import SendPipeline, check
from rota.records import OutgoingRecord
from rota_proto.coordinator.v1 import coordinator_pb2 as codes

# What only members and administrators of groups are answered.
OF_MEMBERS = {
    "NONE",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_SESSION_TIMEOUT",
    "NON_EMPTY_GROUP",
    "GROUP_ID_NOT_FOUND",
    "OFFSET_NOT_AVAILABLE",
    "MEMBER_ID_REQUIRED",
    "GROUP_MAX_SIZE_REACHED",
    "GROUP_SUBSCRIBED_TO_TOPIC",
}


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("rota://localhost", "rota://localhost:7070"),
        ("rota://[::1]:17", "rota://[::1]:17"),
        ("kafka-0:9093, kafka-1", "kafka-0:9093,kafka-1:9092"),
        (["a:1", "b:2"], "a:1,b:2"),
        ("kafka://a:1", "a:1"),
    ],
)
def test_an_address_says_which_engine_it_is(given: str | list[str], address: str) -> None:
    assert address_of(given) == address


@pytest.mark.parametrize("given", ["", "rota://", "http://a:1", "rota://a:1,b:2", "rota://a,rota://b"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        address_of(given)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"acks": 2}, "use 0, 1 or 'all'"),
        ({"acks": 1, "enable_idempotence": True}, "omit acks"),
        ({"acks": 0, "transactional_id": "t"}, "omit acks"),
        ({"enable_idempotence": False, "transactional_id": "t"}, "omit enable_idempotence"),
        ({"batch_size": 0}, "batch_size is 0; it must be greater than 0"),
        ({"linger_ms": -1}, "cannot be negative"),
        ({"linger_ms": 500, "delivery_timeout_ms": 500}, "greater than linger_ms"),
        ({"batch_size": 2 << 20}, "larger than max_request_size"),
        ({"coordination": "rota"}, "coordination is 'rota': use 'Auto', 'Kafka' or 'Rota'"),
        ({"bootstrap": "x"}, "unknown producer setting 'bootstrap'"),
        ({"compression_type": "brotli"}, "compression_type is 'brotli': use one of none, gzip"),
        ({"client_id": "a\nb"}, r"client_id is 'a\\nb': use at most 249 printable characters"),
        ({"client_id": 7}, "client_id is 7: use at most"),
        ({"linger_ms": "5ms"}, "linger_ms is '5ms'; it must be a number, 0 or greater"),
        ({"request_timeout_ms": "30 s"}, "request_timeout_ms is '30 s'; it must be a number greater than 0"),
        ({"batch_size": True}, "batch_size is True; it must be a number greater than 0"),
        ({"enable_idempotence": "false"}, "enable_idempotence is 'false'; it must be True or False"),
        ({"value_serializer": "json"}, "value_serializer is 'json'; it must be a function"),
        ({"partitioner": 3}, "partitioner is 3; it must be a function"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=says):
        options_of(settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "idempotent"), [({}, True), ({"acks": 1}, False), ({"enable_idempotence": False}, False)]
)
def test_a_producer_is_idempotent_where_its_acks_allow_it(settings: dict[str, Any], idempotent: bool) -> None:
    assert Options(**settings).idempotent is idempotent


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (("text", None, None, None), "the value is of type str"),
        ((b"", 17, None, None), "the key is of type int"),
        ((b"", b"", -1, None), "milliseconds since 1970"),
        ((b"", b"", 1 << 63, None), "milliseconds since 1970"),
        ((b"", b"", None, [("name", "text")]), "a header is a str name with bytes"),
        ((b"", b"", None, [(b"name", b"")]), "a header is a str name with bytes"),
    ],
)
def test_what_cannot_be_sent_is_refused_where_it_is_given(record: tuple[Any, ...], says: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=says):
        check(*record)


def test_a_serializer_that_fails_is_named_with_its_topic() -> None:
    preparation = SendPipeline(Options(value_serializer=lambda topic, value: b"%d" % value))
    with pytest.raises(errors.SerializationFailed, match="value_serializer failed on a record for orders"):
        preparation.prepare(OutgoingRecord("orders", "text"), lambda _: 1)


def test_interceptors_see_a_record_one_after_the_other() -> None:
    class Adding(rota.ProducerInterceptor):
        def __init__(self, suffix: str) -> None:
            self.suffix = suffix

        @override
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return OutgoingRecord(record.topic, f"{record.value}{self.suffix}")

    options = Options(
        interceptors=[Adding("b"), Adding("c")], value_serializer=lambda _, value: str(value).encode()
    )
    assert SendPipeline(options).prepare(OutgoingRecord("orders", "a"), lambda _: 1).value == b"abc"


def test_errors_have_kafkas_names_and_numbers() -> None:
    found = errors.error_of(90, "the commit")
    assert (type(found), found.name, found.code, found.fatal, found.retriable) == (
        errors.ProducerFenced,
        "PRODUCER_FENCED",
        90,
        True,
        False,
    )
    assert str(found).startswith("the commit: a newer producer uses this transactional id")
    assert errors.error_of(14).retriable


def test_every_error_has_the_contracts_name_and_every_number_that_a_producer_can_meet_an_error() -> None:
    theirs = {name: code for name, code in codes.ErrorCode.items() if name not in OF_MEMBERS}
    ours = {kind.name: code for code, kind in errors.RotaError._BY_CODE.items()}
    assert {name: ours.get(name) for name in theirs} == theirs


def test_importing_rota_loads_neither_grpc_nor_kafka() -> None:
    code = (
        "import sys, rota; print(sorted({'grpc', 'google.protobuf', 'confluent_kafka'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_producer_on_rotas_log_needs_no_kafka_client() -> None:
    code = (
        "import sys; sys.modules['confluent_kafka'] = None; import rota; rota.Producer, rota.AsyncProducer; "
        "rota.Producer('rota://127.0.0.1:1').close()\n"
        "try: rota.Producer('127.0.0.1:1')\n"
        "except rota.errors.NotSupported as error: print(error)"
    )
    assert "rota[kafka]" in subprocess.check_output([sys.executable, "-c", code], text=True)


def test_every_public_name_is_there() -> None:
    assert [name for name in rota.__all__ if getattr(rota, name, None) is None] == []
