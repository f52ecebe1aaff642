"""
Generate docs/reference/parameters.md: Kafka's parameters beside Rota's settings, flags and manifest; a test compares the two.

Kafka's side, and the reasons of differences, are in `kafka_parameters`; the rest is read from the SDK and the sidecar's flags.
Run as `python -m scripts.generate_parameters_reference`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rota.consumer.options import Options as ConsumerOptions
from rota.consumer.sidecar_options import FLAGS, PROPERTIES
from rota.parameters import CONSUMER, PRODUCER, KafkaParameters
from rota.producer.options import Options as ProducerOptions
from rota_sidecar.config import flags
from rota_sidecar.config.flag_types import Flag
from scripts import kafka_parameters
from scripts.kafka_parameters import SAME, Parameter

FILE = Path(__file__).parents[1] / "docs" / "reference" / "parameters.md"
HEAD = """<!-- Generated from the SDK and the sidecar's flags by `python -m scripts.generate_parameters_reference`; do not edit. -->
# Kafka's parameters

The settings of [consumers](../guide/consumer.md#settings) and [producers](../guide/producer.md#settings) have the names of Kafka's
clients for Python, with underscores: `fetch.min.bytes` is `fetch_min_bytes`. They have Kafka's meaning, in its units. A value of
the wrong type or unit raises `InvalidArgument`, and so does a parameter that Rota does not have. Names without points are those of
kafka-python.

*Flag* is the [sidecar's](../guide/sidecar.md#flags), *manifest* the field of a [ConsumerGroup](consumergroup.md). Times in a manifest are
in seconds.
"""
FLAGS_BESIDE: dict[str, Flag[Any]] = {
    "bootstrap_servers": flags.BOOTSTRAP_SERVERS,
    "group_id": flags.GROUP_ID,
    "client_id": flags.CLIENT_ID,
    "partition_assignment_strategy": flags.ASSIGNORS,
    "enable_auto_commit": flags.COMMIT_MODE,
    "security_protocol": flags.TLS,
    "ssl_cafile": flags.TLS_CA,
    "ssl_certfile": flags.TLS_CERT,
    "ssl_keyfile": flags.TLS_KEY,
    "sasl_username": flags.SASL_USERNAME_FILE,
    "sasl_password": flags.SASL_PASSWORD_FILE,
    "sasl_oauthbearer_client_secret": flags.SASL_CLIENT_SECRET_FILE,
}
"""Flags of the settings that the SDK does not pass on one by one."""

BY_OPTION = {flag.option: flag for flag in flags.FLAGS}
OF_THE_SIDECAR = {**{name: BY_OPTION[option] for name, option in FLAGS.items()}, **FLAGS_BESIDE}
# Settings whose default is that of the flag: the SDK leaves them to the sidecar.
OWN_DEFAULT = frozenset(FLAGS) | {"partition_assignment_strategy"}


def consumer_default(parameter: Parameter) -> object:
    """Return Rota's default of a consumer's setting."""
    if parameter.ours is not SAME:
        return parameter.ours
    if parameter.setting in OWN_DEFAULT:
        flag = OF_THE_SIDECAR[parameter.setting]
        return flag.derived or flag.default
    return defaults(ConsumerOptions)[parameter.setting]


def producer_default(parameter: Parameter) -> object:
    """Return Rota's default of a producer's setting."""
    return (
        defaults(ProducerOptions, bootstrap_servers="")[parameter.setting]
        if parameter.ours is SAME
        else parameter.ours
    )


def defaults(options: type[ConsumerOptions] | type[ProducerOptions], **more: object) -> Mapping[str, object]:
    """Return the defaults of all settings."""
    return {**more, **{each.name: each.default for each in fields(options)}}


def shown(value: object) -> str:
    """Render a default; one that is empty as nothing."""
    match value:
        case None | "" | ():
            return ""
        case bool():
            return str(value).lower()
        case tuple():
            return ", ".join(map(str, value))
        case float() if value == float("inf"):
            return "unlimited"
        case _:
            return str(value)


def kafkas(parameter: Parameter) -> str:
    """Render Kafka's default, and that of kafka-python where it differs."""
    of_kafka = shown(parameter.default)
    if parameter.kafka_python is SAME:
        return of_kafka
    other = shown(parameter.kafka_python) or "none"
    return of_kafka if other == of_kafka else f"{of_kafka or 'none'}; kafka-python {other}"


def consumer_rows() -> Iterator[str]:
    """Render a row for each parameter that consumers take."""
    for each in kafka_parameters.CONSUMER:
        flag = OF_THE_SIDECAR.get(each.setting)
        option = f"`{flag.option}`" if flag is not None else ""
        if each.setting in PROPERTIES and flag is None:
            option = f"`--config={PROPERTIES[each.setting]}=…`"
        manifest = each.manifest or (
            flag.setting.path if flag is not None and flag.setting is not None else ""
        )
        yield (
            f"| `{each.name}` | `{each.setting}` | {option} | {manifest} | {kafkas(each)} | {shown(consumer_default(each))} "
            f"| {each.why} |"
        )


def producer_rows() -> Iterator[str]:
    """Render a row for each parameter that producers take."""
    for each in kafka_parameters.PRODUCER:
        yield f"| `{each.name}` | `{each.setting}` | {kafkas(each)} | {shown(producer_default(each))} | {each.why} |"


def other_rows(kafka: KafkaParameters) -> Iterator[str]:
    """Render a row for each parameter that is renamed, has one value, or is refused."""
    for name, ours in kafka.renamed.items():
        yield f"| `{name}` | called `{ours}` | |"
    for name, each in kafka.fixed.items():
        yield f"| `{name}` | only {shown(each.value)} | {each.reason} |"
    names_of: dict[str, list[str]] = {}
    for name, reason in kafka.refused.items():
        names_of.setdefault(reason, []).append(f"`{name}`")
    for reason, names in names_of.items():
        yield f"| {', '.join(names)} | refused | {reason} |"


def own_settings(
    options: type[ConsumerOptions] | type[ProducerOptions], taken: Sequence[Parameter], kafka: KafkaParameters
) -> str:
    """Render the settings that Kafka's clients do not have."""
    theirs = {each.setting for each in taken} | set(kafka.renamed.values())
    return ", ".join(f"`{each.name}`" for each in fields(options) if each.name not in theirs)


def table(head: str, rows: Iterator[str]) -> str:
    """Render a table."""
    rule = "|" + "---|" * (head.count("|") - 1)
    return "\n".join((head, rule, *rows)) + "\n"


def written() -> str:
    """Render the page."""
    of_consumer = table(
        "| Kafka | SDK | flag | manifest | Kafka's default | Rota's default | why it differs |",
        consumer_rows(),
    )
    of_producer = table(
        "| Kafka | SDK | Kafka's default | Rota's default | why it differs |", producer_rows()
    )
    others = "| parameter | Rota | why |"
    return (
        f"{HEAD}\n## Consumers\n\n{of_consumer}\n"
        f"Settings that Kafka's clients do not have: {own_settings(ConsumerOptions, kafka_parameters.CONSUMER, CONSUMER)}.\n\n"
        f"### Other names and refusals\n\nParameters of kafka-python, confluent-kafka and Java with another name here, with one "
        f"value, or with none.\n\n{table(others, other_rows(CONSUMER))}\n"
        f"## Producers\n\n{of_producer}\n"
        f"Settings that Kafka's clients do not have: {own_settings(ProducerOptions, kafka_parameters.PRODUCER, PRODUCER)}.\n\n"
        f"### Other names and refusals of producers\n\n{table(others, other_rows(PRODUCER))}"
    )


if __name__ == "__main__":
    FILE.write_text(written())
