"""
What can go wrong, under the names that Kafka gives it.

Every error says in one sentence what is wrong and what to do. `code` is the number that travels, `retriable` whether
asking again can help (Rota has done so already, until its time was up), `fatal` whether the object that raised it is
of no use any more.

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
    """Something that is neither known nor expected: look into the server's log."""

    code: ClassVar[int] = NO_CODE
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    _BY_CODE: ClassVar[dict[int, type["RotaError"]]] = {}
    # Whether the same request, sent again, may be answered otherwise.
    retriable: bool = False
    # Whether the producer that raised it must be closed.
    fatal: bool = False
    # The partitions of which a consumer gets no records, where a poll raises because of that.
    partitions: tuple[tuple[str, int], ...] = ()

    def __init__(self, where: str = "") -> None:
        """`where` it happened, as words that stand before the sentence."""
        sentence = " ".join((type(self).__doc__ or "").split()).rstrip(".")
        super().__init__(f"{where}: {sentence} ({self.name})" if where else f"{sentence} ({self.name})")

    @classmethod
    def saying(cls, sentence: str) -> Self:
        """One with another sentence than its own."""
        error = cls.__new__(cls)
        Exception.__init__(error, sentence)
        return error

    @override
    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()
        if "code" in cls.__dict__:
            cls._BY_CODE[cls.code] = cls


def error_of(code: int, where: str = "", message: str = "") -> RotaError:
    """The error of a number in an answer, with the answer's message in place of its own sentence if there is one."""
    kind = RotaError._BY_CODE.get(code)
    if kind is None:
        return RotaError(
            f"{where or 'the server'} answered with error {code}, which this version does not know"
        )
    return kind.saying(f"{where}: {message} ({kind.name})") if message else kind(where)


class _Said(RotaError):
    """An error of this side, whose sentence is made where it happens."""

    def __init__(self, sentence: str) -> None:
        Exception.__init__(self, sentence)


# Of this side


class ProducerClosed(_Said):
    """The producer was closed."""


class ConsumerClosed(_Said):
    """The consumer was closed."""


class WokenUp(_Said):
    """Somebody called `wakeup`."""


class SidecarFailed(_Said):
    """The sidecar is not there, has ended, or is not set as the application needs it."""


class NoOffsetForPartition(_Said):
    """Nothing is committed for a partition, and `auto_offset_reset` is `none`: seek, or commit an offset."""


class DeserializationFailed(_Said):
    """A deserializer raised."""


class InvalidArgument(_Said):
    """What the caller gave cannot be sent."""

    name = "INVALID_REQUEST"


class SerializationFailed(_Said):
    """A serializer raised."""


class NotSupported(_Said):
    """The engine behind this address has no such thing."""

    name = "UNSUPPORTED_VERSION"


class TimedOut(_Said):
    """An answer, a place in the buffer or a topic did not come in time."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True


class BufferExhausted(TimedOut):
    """The buffer stayed full for `max_block_ms`."""


class UndecidedCommit(TimedOut):
    """Nobody knows yet whether the transaction counts."""


class Disconnected(_Said):
    """The server cannot be reached."""

    code = 13
    name = "NETWORK_EXCEPTION"
    retriable = True


class AuthenticationFailed(_Said):
    """The server does not know this caller."""

    code = 58
    name = "SASL_AUTHENTICATION_FAILED"


class IllegalState(_Said):
    """The call does not fit what the producer is doing."""

    name = "ILLEGAL_STATE"


class TransactionAborted(_Said):
    """The record belongs to a transaction that was aborted before it was sent."""


def refused_in_callback() -> IllegalState:
    """What a call says that would wait for the thread that it is made in."""
    return IllegalState(
        "this call waits for the server, and a callback runs in the thread that would hear of it: make it from a "
        "thread of the application"
    )


# Of the server


class UnknownServerError(RotaError):
    """the server failed in a way it did not foresee; look into its log"""

    code = -1


class OffsetOutOfRange(RotaError):
    """there is no record at this offset any more, or not yet; read on from the start or the end"""

    code = 1


class CorruptMessage(RotaError):
    """the records were damaged on the way; send them again"""

    code = 2
    retriable = True


class UnknownTopicOrPartition(RotaError):
    """there is no such topic or partition; create it first, with rota.create_topics or `rota topics create`"""

    code = 3


class RequestTimedOut(RotaError):
    """the server did not finish in time; try again"""

    code = 7
    retriable = True


class RecordTooLarge(RotaError):
    """the record or its batch is larger than the server takes; send smaller ones, or lower batch_size"""

    code = 10
    name = "MESSAGE_TOO_LARGE"


class OffsetMetadataTooLarge(RotaError):
    """the text beside the offset is too long; shorten it"""

    code = 12


class CoordinatorLoadInProgress(RotaError):
    """the server is still reading its log; try again in a moment"""

    code = 14
    retriable = True


class CoordinatorNotAvailable(RotaError):
    """nobody coordinates this group or transaction at the moment; try again"""

    code = 15
    retriable = True


class NotCoordinator(RotaError):
    """another server coordinates this group or transaction; find it and ask there"""

    code = 16
    retriable = True


class InvalidTopic(RotaError):
    """the name is none for a topic; use letters, digits, '.', '_' and '-', 249 at most"""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(RotaError):
    """the batch is larger than a segment of the log; lower batch_size"""

    code = 18


class InvalidRequiredAcks(RotaError):
    """acks is neither 0, 1 nor 'all'; use one of these"""

    code = 21


class IllegalGeneration(RotaError):
    """the group has gone on to another generation; abort, and read on from what is assigned now"""

    code = 22


class InvalidGroupId(RotaError):
    """the group's id is none; give a name of 1 to 249 characters"""

    code = 24


class UnknownMemberId(RotaError):
    """the group has no such member any more; abort, and join again"""

    code = 25


class RebalanceInProgress(RotaError):
    """the group rebalances; abort, and go on with what is assigned afterwards"""

    code = 27


class InvalidCommitOffsetSize(RotaError):
    """the offsets are too large for one write; commit fewer at a time"""

    code = 28


class TopicAuthorizationFailed(RotaError):
    """this caller may not use the topic; have it granted"""

    code = 29


class GroupAuthorizationFailed(RotaError):
    """this caller may not use the group; have it granted"""

    code = 30


class ClusterAuthorizationFailed(RotaError):
    """this caller may not do that; have it granted"""

    code = 31


class InvalidTimestamp(RotaError):
    """the timestamp is outside of what the topic takes; check the clock"""

    code = 32


class UnsupportedVersion(RotaError):
    """the server is too old for this request; update it"""

    code = 35


class TopicAlreadyExists(RotaError):
    """there is a topic of that name already; use it, or delete it first"""

    code = 36


class InvalidPartitions(RotaError):
    """the number of partitions is not possible; it starts at 1 and only grows"""

    code = 37


class InvalidConfig(RotaError):
    """a setting of the topic is not possible; see its documentation"""

    code = 40


class InvalidRequest(RotaError):
    """the server could make no sense of the request; see its log"""

    code = 42


class PolicyViolation(RotaError):
    """a limit of the server forbids it; see its settings"""

    code = 44


class OutOfOrderSequenceNumber(RotaError):
    """records before this one are missing in the log; abort, or close the producer and send again"""

    code = 45


class DuplicateSequenceNumber(RotaError):
    """the records are in the log already, at an offset that is not known any more"""

    code = 46


class InvalidProducerEpoch(RotaError):
    """the transaction was ended by somebody else, or timed out; abort it, and begin a new one"""

    code = 47


class InvalidTxnState(RotaError):
    """the transaction is not in a state for this; abort it, and begin a new one"""

    code = 48


class InvalidProducerIdMapping(RotaError):
    """the server does not know this transactional id any more; close the producer and make a new one"""

    code = 49
    fatal = True


class InvalidTransactionTimeout(RotaError):
    """the server allows no transaction that long; lower transaction_timeout_ms"""

    code = 50


class ConcurrentTransactions(RotaError):
    """the transaction before is still being ended; try again in a moment"""

    code = 51
    retriable = True


class TransactionalIdAuthorizationFailed(RotaError):
    """this caller may not use the transactional id; have it granted"""

    code = 53
    fatal = True


class KafkaStorageError(RotaError):
    """the server could not write to its disk; see its log, and try again"""

    code = 56
    retriable = True


class UnknownProducerId(RotaError):
    """nothing of this producer is left in the log; send again"""

    code = 59


class NonEmptyGroup(RotaError):
    """the group has members; stop them first"""

    code = 68


class GroupIdNotFound(RotaError):
    """there is no such group; see `rota groups list`"""

    code = 69


class FencedLeaderEpoch(RotaError):
    """the partition has a newer leader; ask again"""

    code = 74
    retriable = True


class UnknownLeaderEpoch(RotaError):
    """the partition's new leader is not known here yet; ask again"""

    code = 75
    retriable = True


class UnsupportedCompressionType(RotaError):
    """the server cannot read records in this layout; update it, or write with an older client"""

    code = 76


class FencedInstanceId(RotaError):
    """another member has taken this instance's place; abort and stop, or use another group_instance_id"""

    code = 82


class InvalidRecord(RotaError):
    """the server refuses a record of the batch; look at its contents"""

    code = 87


class UnstableOffsetCommit(RotaError):
    """an offset is part of a transaction that is still open; ask again"""

    code = 88
    retriable = True


class ThrottlingQuotaExceeded(RotaError):
    """the server has too much to do; try again more slowly"""

    code = 89
    retriable = True


class ProducerFenced(RotaError):
    """a newer producer uses this transactional id; close this one"""

    code = 90
    fatal = True


class UnknownTopicId(RotaError):
    """the topic was deleted, and perhaps made again; look for it anew"""

    code = 100


class InconsistentTopicId(RotaError):
    """the topic was deleted and made again; look for it anew"""

    code = 103


class TransactionalIdNotFound(RotaError):
    """there is no such transactional id; call init_transactions first"""

    code = 105


class TransactionAbortable(RotaError):
    """the transaction cannot be committed; abort it, and begin a new one"""

    code = 120
