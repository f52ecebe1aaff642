"""
The exceptions of the SDK, under Kafka's names and codes. All derive from `RotaError`.

Each message is one sentence: the failure, then the remedy. `code` is the number on the wire. `retriable` errors were
retried by Rota until the call's timeout. After a `fatal` error the object that raised it must be closed.

    try:
        producer.commit_transaction()
    except rota.errors.ProducerFenced:
        raise SystemExit("another copy of this job has taken over")
    except rota.errors.RotaError as error:
        if error.fatal:
            raise
        producer.abort_transaction()
"""

import re
from typing import ClassVar, Self

from typing_extensions import override

NO_CODE = -1


class RotaError(Exception):
    """
    Base of all errors. Invariant: the message is complete without docstrings, which `python -OO` removes.

    The server's errors have a fixed `message`; those of the SDK get theirs where they are raised.
    """

    # The default text: failure, semicolon, remedy; in lower case, without a full stop.
    message: ClassVar[str] = "unexpected error; see the server's log"
    code: ClassVar[int] = NO_CODE
    # Kafka's name of the error; by default the class name in upper snake case.
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    _BY_CODE: ClassVar[dict[int, type["RotaError"]]] = {}
    # Whether the same request may succeed when it is sent again.
    retriable: bool = False
    # Whether the producer that raised it must be closed.
    fatal: bool = False
    # The partitions whose error a consumer's poll raises; empty for all other errors.
    partitions: tuple[tuple[str, int], ...] = ()

    def __init__(self, where: str = "") -> None:
        """`where` precedes the message: the topic, partition, group or address that failed."""
        text = f"{self.message} ({self.name})"
        super().__init__(f"{where}: {text}" if where else text)

    @classmethod
    def with_message(cls, message: str) -> Self:
        """Create an error of this class with its own message instead of the default one."""
        error = cls.__new__(cls)
        Exception.__init__(error, message)
        return error

    @override
    def __init_subclass__(cls) -> None:
        if cls.__doc__ is None:
            cls.__doc__ = cls.message
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()
        if "code" in cls.__dict__:
            cls._BY_CODE[cls.code] = cls


def error_of(code: int, where: str = "", message: str = "") -> RotaError:
    """Map an answer's error code to an error; a message in the answer replaces the default one."""
    kind = RotaError._BY_CODE.get(code)
    if kind is None:
        return RotaError.with_message(
            f"{where or 'the server'}: error code {code} is unknown to this version of rota; upgrade it"
        )
    return kind.with_message(f"{where}: {message} ({kind.name})") if message else kind(where)


class _SdkError(RotaError):
    """Base of the errors that the SDK raises itself; the message is given where they are raised."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


# Raised by the SDK


class ProducerClosed(_SdkError):
    """Call on a producer that was closed."""


class ConsumerClosed(_SdkError):
    """Call on a consumer that was closed."""


class WokenUp(_SdkError):
    """Interruption of a poll by `wakeup`."""


class SidecarFailed(_SdkError):
    """The sidecar is missing, has exited, or has other settings than the application needs."""


class NoOffsetForPartition(_SdkError):
    """A partition has no committed offset, and `auto_offset_reset` is `none`: seek, or commit an offset."""


class DeserializationFailed(_SdkError):
    """A deserializer raised; its exception is the cause."""


class InvalidArgument(_SdkError):
    """An argument or a setting is invalid."""

    name = "INVALID_REQUEST"


class SerializationFailed(_SdkError):
    """A serializer raised; its exception is the cause."""


class NotSupported(_SdkError):
    """The server or the backend does not support the operation."""

    name = "UNSUPPORTED_VERSION"


class TimedOut(_SdkError):
    """An answer, room in the buffer or a topic was not available in time."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True


class BufferExhausted(TimedOut):
    """The producer's buffer stayed full for `max_block_ms`."""


class UndecidedCommit(TimedOut):
    """The outcome of `commit_transaction` is unknown: call it again."""


class Disconnected(_SdkError):
    """The server cannot be reached."""

    code = 13
    name = "NETWORK_EXCEPTION"
    retriable = True


class AuthenticationFailed(_SdkError):
    """The server did not accept the credentials, or they cannot be read."""

    code = 58
    name = "SASL_AUTHENTICATION_FAILED"


class IllegalState(_SdkError):
    """The state of the producer or consumer does not allow the call."""

    name = "ILLEGAL_STATE"


class TransactionAborted(_SdkError):
    """The record's transaction was aborted before the record was sent."""


def blocking_call_in_callback() -> IllegalState:
    """Error of a blocking call on the thread that would have to complete it."""
    return IllegalState(
        "blocking call inside a callback: it would wait for the thread that runs the callback; call it from a thread "
        "of the application"
    )


# Returned by a server


class UnknownServerError(RotaError):
    message = "the server failed unexpectedly; see its log"
    code = -1


class OffsetOutOfRange(RotaError):
    message = "the offset is not in the partition's log; seek to the beginning or the end"
    code = 1


class CorruptMessage(RotaError):
    message = "the record batch is corrupt; send it again"
    code = 2
    retriable = True


class UnknownTopicOrPartition(RotaError):
    message = (
        "the topic or partition does not exist; create it with rota.create_topics or `rota topics create`"
    )
    code = 3


class RequestTimedOut(RotaError):
    message = "the server did not complete the request in time; try again"
    code = 7
    retriable = True


class RecordTooLarge(RotaError):
    message = (
        "the record or its batch is larger than the server accepts; send smaller records, or lower batch_size"
    )
    code = 10
    name = "MESSAGE_TOO_LARGE"


class OffsetMetadataTooLarge(RotaError):
    message = "the metadata of the offset is too long; shorten it"
    code = 12


class CoordinatorLoadInProgress(RotaError):
    message = "the coordinator is still loading its log; try again"
    code = 14
    retriable = True


class CoordinatorNotAvailable(RotaError):
    message = "the coordinator of the group or transaction is not available; try again"
    code = 15
    retriable = True


class NotCoordinator(RotaError):
    message = "this server is not the coordinator of the group or transaction; look the coordinator up again"
    code = 16
    retriable = True


class InvalidTopic(RotaError):
    message = "invalid topic name; use letters, digits, '.', '_' and '-', 249 at most"
    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(RotaError):
    message = "the batch is larger than a log segment; lower batch_size"
    code = 18


class InvalidRequiredAcks(RotaError):
    message = "invalid acks; use 0, 1 or 'all'"
    code = 21


class IllegalGeneration(RotaError):
    message = (
        "the generation is outdated, the group has rebalanced; abort, and continue with the new assignment"
    )
    code = 22


class InvalidGroupId(RotaError):
    message = "invalid group id; use 1 to 249 characters"
    code = 24


class UnknownMemberId(RotaError):
    message = "the coordinator does not know this member; abort, and rejoin the group"
    code = 25


class RebalanceInProgress(RotaError):
    message = "the group is rebalancing; abort, and continue with the new assignment"
    code = 27


class InvalidCommitOffsetSize(RotaError):
    message = "the offsets are too large for one commit; commit fewer at a time"
    code = 28


class TopicAuthorizationFailed(RotaError):
    message = "not authorized to access the topic; have access granted"
    code = 29


class GroupAuthorizationFailed(RotaError):
    message = "not authorized to access the group; have access granted"
    code = 30


class ClusterAuthorizationFailed(RotaError):
    message = "not authorized for this operation; have it granted"
    code = 31


class InvalidTimestamp(RotaError):
    message = "the record's timestamp is out of the topic's range; check the clock"
    code = 32


class UnsupportedVersion(RotaError):
    message = "the server does not support this request; upgrade it"
    code = 35


class TopicAlreadyExists(RotaError):
    message = "the topic already exists; use it, or delete it first"
    code = 36


class InvalidPartitions(RotaError):
    message = "invalid number of partitions; it must be 1 or more, and cannot be reduced"
    code = 37


class InvalidConfig(RotaError):
    message = "invalid topic configuration; see its documentation"
    code = 40


class InvalidRequest(RotaError):
    message = "the server rejected the request as invalid; see its log"
    code = 42


class PolicyViolation(RotaError):
    message = "the request exceeds a limit of the server; see its configuration"
    code = 44


class OutOfOrderSequenceNumber(RotaError):
    message = "records before this one are missing in the log; abort, or close the producer and send again"
    code = 45


class DuplicateSequenceNumber(RotaError):
    message = "the records are already in the log, at an offset that is no longer known"
    code = 46


class InvalidProducerEpoch(RotaError):
    message = "the producer's epoch is outdated, its transaction was ended or has timed out; abort it, and begin a new one"
    code = 47


class InvalidTxnState(RotaError):
    message = "the transaction's state does not allow this operation; abort it, and begin a new one"
    code = 48


class InvalidProducerIdMapping(RotaError):
    message = "the server no longer knows this transactional id; close the producer and create a new one"
    code = 49
    fatal = True


class InvalidTransactionTimeout(RotaError):
    message = "transaction_timeout_ms exceeds the server's maximum; lower it"
    code = 50


class ConcurrentTransactions(RotaError):
    message = "the previous transaction is still being completed; try again"
    code = 51
    retriable = True


class TransactionalIdAuthorizationFailed(RotaError):
    message = "not authorized to use the transactional id; have access granted"
    code = 53
    fatal = True


class KafkaStorageError(RotaError):
    message = "the server could not write to its disk; see its log, and try again"
    code = 56
    retriable = True


class UnknownProducerId(RotaError):
    message = "the log has no records of this producer any more; send again"
    code = 59


class NonEmptyGroup(RotaError):
    message = "the group has members; stop them first"
    code = 68


class GroupIdNotFound(RotaError):
    message = "the group does not exist; see `rota groups list`"
    code = 69


class FencedLeaderEpoch(RotaError):
    message = "the partition has a newer leader epoch; try again"
    code = 74
    retriable = True


class UnknownLeaderEpoch(RotaError):
    message = "the server does not know the partition's leader epoch yet; try again"
    code = 75
    retriable = True


class UnsupportedCompressionType(RotaError):
    message = "the server does not support the compression of the records; upgrade it, or set compression_type to 'none'"
    code = 76


class FencedInstanceId(RotaError):
    message = "another member has joined with this group_instance_id; abort and stop, or use another group_instance_id"
    code = 82


class InvalidRecord(RotaError):
    message = "the server rejected a record of the batch; check its contents"
    code = 87


class UnstableOffsetCommit(RotaError):
    message = "the offset belongs to a transaction that is still open; try again"
    code = 88
    retriable = True


class ThrottlingQuotaExceeded(RotaError):
    message = "the server is overloaded, or a quota is exceeded; try again more slowly"
    code = 89
    retriable = True


class ProducerFenced(RotaError):
    message = "a newer producer uses this transactional id; close this one"
    code = 90
    fatal = True


class UnknownTopicId(RotaError):
    message = (
        "the topic id does not exist, the topic was deleted and perhaps recreated; look the topic up again"
    )
    code = 100


class InconsistentTopicId(RotaError):
    message = "the topic was deleted and recreated; look the topic up again"
    code = 103


class TransactionalIdNotFound(RotaError):
    message = "the transactional id does not exist; call init_transactions first"
    code = 105


class TransactionAbortable(RotaError):
    message = "the transaction cannot be committed; abort it, and begin a new one"
    code = 120
