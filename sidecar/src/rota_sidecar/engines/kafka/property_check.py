"""
Checks properties of `--config` against librdkafka before the sidecar joins its group. Called by `wiring` at the start.

librdkafka knows names and values of its properties and tells them to clients only that it creates; these clients have no
address to connect to.
"""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, Producer

from rota_sidecar.engines.kafka import consumption, writing
from rota_sidecar.engines.kafka.librdkafka import Config, reason_of


def property_problem(properties: Mapping[str, str]) -> str:
    """Return why librdkafka refuses the properties; empty: it accepts them."""
    of_consumer: Config = {**consumption.TUNING, "group.id": "check", "log_level": 0, **properties}
    of_producer: Config = {**writing.TUNING, "log_level": 0, **properties}
    try:
        Consumer(of_consumer).close()
        Producer(of_producer)
    except KafkaException as error:
        return reason_of(error.args[0])
    except (TypeError, ValueError) as error:
        return str(error)
    return ""
