"""What the options ask for of the outside: an engine's connections, the member, and where that is remembered."""

import argparse
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rota_sidecar.config import endpoints
from rota_sidecar.config.parsing import listed
from rota_sidecar.core.assignors.model import Assignor
from rota_sidecar.core.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.core.member.member import Member
from rota_sidecar.engines.port import Coordination, OnCoordinatorEvent, Topics
from rota_sidecar.engines.records import DeadLetterWriter, OnFetchResult, Records
from rota_sidecar.membership.driver import MembershipPorts
from rota_sidecar.membership.leader import Leader
from rota_sidecar.membership.state_file import Owner, StateFile

if TYPE_CHECKING:
    from rota_sidecar.engines.kafka.settings import KafkaSettings
    from rota_sidecar.engines.rota.connection import Credentials

Strategies = Mapping[str, Assignor]
Complain = Callable[[str], None]
LookAtProtocol = Callable[[float], Awaitable[str]]


def open_state(options: argparse.Namespace) -> StateFile | None:
    """Where the member is remembered, if that is wanted."""
    if not options.state_folder:
        return None
    return StateFile(Path(options.state_folder), Owner(options.group_id, options.group_instance_id or None))


def member_for(
    options: argparse.Namespace, offers: Mapping[str, Strategy], wanted: Subscription | None = None
) -> Member:
    """The member, as it begins: with the topics of the options, or with others that are wanted since."""
    strategies = tuple(offers[name] for name in offered(options))
    return Member(member_config(options), wanted or subscription(options), strategies)


def offers_of(strategies: Strategies) -> Mapping[str, Strategy]:
    """Every strategy that can be offered."""
    return {name: Strategy(name, strategy.cooperative) for name, strategy in strategies.items()}


def engine_for(
    options: argparse.Namespace,
    strategies: Strategies,
    hear: OnCoordinatorEvent,
    state_file: StateFile | None,
) -> MembershipPorts:
    """All that the membership needs of the outside."""
    coordination, protocol_of_group = coordination_for(options, hear)
    topics = topics_for(options)
    return MembershipPorts(
        coordination,
        topics,
        Leader(options.group_id, coordination, topics, strategies, wall_ms),
        chance,
        options.topics_refresh_ms / 1000,
        state_file,
        protocol_of_group,
    )


def member_config(options: argparse.Namespace) -> MemberConfig:
    """What stays as it is."""
    return MemberConfig(
        group_id=options.group_id,
        client_id=options.client_id,
        instance_id=options.group_instance_id or None,
        rack=options.rack,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        rebalance_timeout_ms=options.rebalance_timeout_ms,
    )


def subscription(options: argparse.Namespace) -> Subscription:
    """The topics to begin with."""
    return Subscription(tuple(listed(options.topics)), options.topic_pattern)


def offered(options: argparse.Namespace) -> list[str]:
    """The strategies to begin with, the preferred one first."""
    return listed(options.assignors)


def topics_for(options: argparse.Namespace) -> Topics:
    """Where it is looked up which topics there are."""
    if endpoints.speaks_rota(options):
        from rota_sidecar.engines.rota.topics import RotaTopics

        return RotaTopics(endpoints.rota_addresses(options), rota_credentials(options))
    from rota_sidecar.engines.kafka.topics import KafkaTopics

    return KafkaTopics(kafka_settings(options))


def coordination_for(
    options: argparse.Namespace, hear: OnCoordinatorEvent
) -> tuple[Coordination, LookAtProtocol | None]:
    """A way to the group's coordinator, and to what the engine takes the group for; what the other one needs is not
    even loaded."""
    if endpoints.is_coordinated_by_rota(options):
        from rota_sidecar.engines.rota.coordination import RotaCoordination

        addresses = endpoints.rota_addresses(options)
        return RotaCoordination(options.group_id, addresses, rota_credentials(options), hear), None
    from rota_sidecar.engines.kafka.coordination import KafkaCoordination

    brokers = KafkaCoordination(kafka_settings(options), options.group_id, hear)
    return brokers, brokers.protocol_of_group


def records_for(options: argparse.Namespace, hear: OnFetchResult, complain: Complain) -> Records:
    """Where records are read."""
    if not options.linger_ms:
        return _reader_for(options, hear, complain)
    from rota_sidecar.engines.linger import Lingering

    linger_s = options.linger_ms / 1000
    return Lingering(lambda heard: _reader_for(options, heard, complain), hear, linger_s)


def _reader_for(options: argparse.Namespace, hear: OnFetchResult, complain: Complain) -> Records:
    read_committed = options.isolation_level == "read_committed"
    with_keys = options.ordering == "key"
    if endpoints.speaks_rota(options):
        from rota_sidecar.engines.rota.fetched import ReadOptions
        from rota_sidecar.engines.rota.reading import RotaRecords

        manner = ReadOptions(read_committed=read_committed, with_keys=with_keys)
        credentials = rota_credentials(options)
        return RotaRecords(endpoints.rota_addresses(options), credentials, hear, complain, manner)
    from rota_sidecar.engines.kafka import reading as kafka

    on_kafka = kafka.ReadOptions(options.group_id, read_committed, with_keys)
    return kafka.KafkaRecords(kafka_settings(options), hear, complain, on_kafka)


def dead_letter_writer_for(options: argparse.Namespace) -> DeadLetterWriter:
    """Where dead letters are written."""
    if endpoints.speaks_rota(options):
        from rota_sidecar.engines.rota.writing import RotaDeadLetterWriter

        return RotaDeadLetterWriter(endpoints.rota_addresses(options), rota_credentials(options))
    from rota_sidecar.engines.kafka.writing import KafkaDeadLetterWriter

    return KafkaDeadLetterWriter(kafka_settings(options))


def rota_credentials(options: argparse.Namespace) -> "Credentials":
    """What Rota's servers are shown."""
    from rota_sidecar.engines.rota.connection import Credentials

    return Credentials(
        tls=endpoints.has_tls(options),
        ca_file=file(options.tls_ca),
        certificate_file=file(options.tls_cert),
        key_file=file(options.tls_key),
        token_file=file(options.token_file),
    )


def fleet_credentials(options: argparse.Namespace) -> "Credentials":
    """What Fleet is shown: the same, with a token of its own if there is one."""
    own = file(options.fleet_token_file)
    shown = rota_credentials(options)
    return shown if own is None else replace(shown, token_file=own)


def kafka_settings(options: argparse.Namespace) -> "KafkaSettings":
    """What brokers are shown."""
    from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl, TlsFiles

    tls = TlsFiles(file(options.tls_ca), file(options.tls_cert), file(options.tls_key))
    login = Sasl(
        options.sasl_mechanism,
        options.sasl_username,
        options.sasl_password,
        file(options.sasl_username_file),
        file(options.sasl_password_file),
    )
    return KafkaSettings(
        tuple(listed(options.bootstrap_servers)),
        options.client_id,
        tls if endpoints.has_tls(options) else None,
        login if options.sasl_mechanism else None,
        options.insecure,
    )


def file(name: str) -> Path | None:
    """The file, if one is named."""
    return Path(name) if name else None


def chance() -> float:
    """A number from 0 up to 1, drawn anew each time."""
    return random.random()


def wall_s() -> float:
    """The time of day."""
    return time.time()  # noqa: TID251  given to all who need it from here


def wall_ms() -> int:
    """The same, in milliseconds."""
    return int(wall_s() * 1000)
