"""Translate errors of confluent-kafka: the broker's by their codes, librdkafka's own by their meaning."""

from confluent_kafka import KafkaError, KafkaException

from rota import errors

OWN: dict[int, type[errors.RotaError]] = {
    KafkaError._FENCED: errors.ProducerFenced,
    KafkaError._UNKNOWN_TOPIC: errors.UnknownTopicOrPartition,
    KafkaError._UNKNOWN_PARTITION: errors.UnknownTopicOrPartition,
    KafkaError._AUTHENTICATION: errors.AuthenticationFailed,
    KafkaError._SSL: errors.AuthenticationFailed,
    KafkaError._TRANSPORT: errors.Disconnected,
    KafkaError._ALL_BROKERS_DOWN: errors.Disconnected,
    KafkaError._RESOLVE: errors.Disconnected,
    KafkaError._TIMED_OUT: errors.TimedOut,
    KafkaError._TIMED_OUT_QUEUE: errors.TimedOut,
    KafkaError._MSG_TIMED_OUT: errors.TimedOut,
    KafkaError._STATE: errors.IllegalState,
    KafkaError._INVALID_ARG: errors.InvalidArgument,
    KafkaError._CONFLICT: errors.IllegalState,
    KafkaError._PURGE_QUEUE: errors.TransactionAborted,
    KafkaError._PURGE_INFLIGHT: errors.TransactionAborted,
    KafkaError._QUEUE_FULL: errors.BufferExhausted,
    KafkaError._UNSUPPORTED_FEATURE: errors.NotSupported,
}


def error_from(error: KafkaError, where: str) -> errors.RotaError:
    """Convert an error; the text of librdkafka's own errors is kept."""
    code = error.code()
    kind = OWN.get(code)
    found: errors.RotaError
    if kind is None and code >= 0:
        found = errors.error_of(code, where)
    else:
        # librdkafka's own text: more specific than the error's name.
        found = (kind or errors.RotaError).with_message(f"{where}: {error.str()}")
    found.retriable = error.retriable() or found.retriable
    found.fatal = error.fatal() or found.fatal
    if error.txn_requires_abort():
        found.retriable = False
        found.add_note("the transaction must be aborted")
    return found


def error_in(exception: KafkaException, where: str) -> errors.RotaError:
    """Return the error that an exception carries."""
    return error_from(exception.args[0], where)
