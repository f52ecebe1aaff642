"""
Make the objects that a configuration asks for: the backend's ports, the member, its state file; and read the clocks.

Called by `process.sidecar` and `lifecycle.member`. A backend that is not configured is not loaded.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from rota_sidecar.config.sidecar_config import OAuthConfig, SidecarConfig
from rota_sidecar.core.assignors.model import Assignor
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.member.config import Strategy, Subscription
from rota_sidecar.core.member.member import Member
from rota_sidecar.engines.port import Coordination, OnCoordinatorEvent, Topics
from rota_sidecar.engines.records import DeadLetterWriter, FetchLimits, OnFetchResult, Records
from rota_sidecar.membership.driver import MembershipPorts
from rota_sidecar.membership.leader import Leader
from rota_sidecar.membership.state_file import Owner, StateFile

if TYPE_CHECKING:
    from rota_service.oauth_provider import TokenProvider
    from rota_sidecar.engines.kafka.settings import KafkaSettings
    from rota_sidecar.engines.rota.connection import Credentials

LOG = logging.getLogger(__name__)
Strategies = Mapping[str, Assignor]
Complain = Callable[[str], None]
LookAtProtocol = Callable[[float], Awaitable[str]]


def open_state(config: SidecarConfig) -> StateFile | None:
    """Open the file of the member's identity; None: it is not kept."""
    folder, member = config.process.state_folder, config.member
    if folder is None:
        return None
    # The name that Fleet has assigned to the process before this one is this one's, also while Fleet is unavailable.
    awaits_name = config.is_static and member.instance_id is None
    return StateFile(folder, Owner(member.group_id, member.instance_id), adopts_instance=awaits_name)


def member_for(
    config: SidecarConfig, offers: Mapping[str, Strategy], subscription: Subscription | None = None
) -> Member:
    """Make the member, with a subscription of its own or that of the configuration."""
    strategies = tuple(offers[name] for name in config.assignors)
    return Member(config.member, subscription or config.subscription, strategies)


def offers_of(strategies: Strategies) -> Mapping[str, Strategy]:
    """Return every strategy as the member can offer it, by name."""
    return {name: Strategy(name, strategy.cooperative) for name, strategy in strategies.items()}


def engine_for(
    config: SidecarConfig, strategies: Strategies, on_event: OnCoordinatorEvent, state_file: StateFile | None
) -> MembershipPorts:
    """Connect the ports of the membership: coordinator, topics, leader, state file."""
    coordination, protocol_of_group = coordination_for(config, on_event)
    topics = topics_for(config)
    return MembershipPorts(
        coordination,
        topics,
        Leader(config.member.group_id, coordination, topics, strategies, wall_ms),
        chance,
        config.backend.topics_refresh_ms / 1000,
        state_file,
        protocol_of_group,
    )


def topics_for(config: SidecarConfig) -> Topics:
    """Make the port that looks up topics."""
    if config.backend.stores_in_rota:
        from rota_sidecar.engines.rota.topics import RotaTopics

        return RotaTopics(config.backend.rota_addresses, rota_credentials(config))
    from rota_sidecar.engines.kafka.topics import KafkaTopics

    return KafkaTopics(kafka_settings(config))


async def cluster_id(config: SidecarConfig, within_s: float) -> str:
    """Return the id of the Kafka cluster that stores the records; empty: it has none. Raises Unreachable, Refused."""
    from rota_sidecar.engines.kafka.topics import KafkaTopics

    topics = KafkaTopics(kafka_settings(config))
    try:
        return await topics.cluster_id(within_s)
    finally:
        await topics.close()


def coordination_for(
    config: SidecarConfig, on_event: OnCoordinatorEvent
) -> tuple[Coordination, LookAtProtocol | None]:
    """
    Make the port to the group's coordinator, and on Kafka the lookup of the group's protocol.

    The modules of the other backend are not loaded.
    """
    group_id = config.member.group_id
    if config.backend.is_coordinated_by_rota:
        from rota_sidecar.engines.rota.coordination import RotaCoordination

        addresses = config.backend.rota_addresses
        return RotaCoordination(group_id, addresses, rota_credentials(config), on_event), None
    from rota_sidecar.engines.kafka.coordination import KafkaCoordination

    brokers = KafkaCoordination(kafka_settings(config), group_id, on_event)
    return brokers, brokers.protocol_of_group


def records_for(config: SidecarConfig, on_event: OnFetchResult, complain: Complain) -> Records:
    """Make the port that reads records, with --linger-ms behind a buffer."""
    linger_s = config.backend.linger_ms / 1000
    if not linger_s:
        return _reader_for(config, on_event, complain)
    from rota_sidecar.engines.linger import Lingering

    return Lingering(lambda inner: _reader_for(config, inner, complain), on_event, linger_s)


def _reader_for(config: SidecarConfig, on_event: OnFetchResult, complain: Complain) -> Records:
    backend = config.backend
    with_keys = config.delivery.rules.ordering is Ordering.KEY
    limits = FetchLimits(backend.fetch_min_bytes, backend.fetch_max_bytes, backend.fetch_max_wait_ms)
    if backend.stores_in_rota:
        from rota_sidecar.engines.rota.fetched import ReadOptions
        from rota_sidecar.engines.rota.reading import RotaRecords

        options = ReadOptions(read_committed=backend.read_committed, with_keys=with_keys, limits=limits)
        return RotaRecords(backend.rota_addresses, rota_credentials(config), on_event, complain, options)
    from rota_sidecar.engines.kafka import read_options
    from rota_sidecar.engines.kafka.clients import uses_python_client

    on_kafka = read_options.ReadOptions(config.member.group_id, backend.read_committed, with_keys, limits)
    if uses_python_client(config.security.sasl.mechanism):
        from rota_sidecar.engines.kafka.python_client.reading import PythonRecords

        return PythonRecords(kafka_settings(config), on_event, complain, on_kafka)
    from rota_sidecar.engines.kafka.reading import KafkaRecords

    return KafkaRecords(kafka_settings(config), on_event, complain, on_kafka)


def dead_letter_writer_for(config: SidecarConfig) -> DeadLetterWriter:
    """Make the port that writes dead letters."""
    if config.backend.stores_in_rota:
        from rota_sidecar.engines.rota.writing import RotaDeadLetterWriter

        return RotaDeadLetterWriter(config.backend.rota_addresses, rota_credentials(config))
    from rota_sidecar.engines.kafka.clients import uses_python_client

    if uses_python_client(config.security.sasl.mechanism):
        from rota_sidecar.engines.kafka.python_client.writing import PythonDeadLetterWriter

        return PythonDeadLetterWriter(kafka_settings(config))
    from rota_sidecar.engines.kafka.writing import KafkaDeadLetterWriter

    return KafkaDeadLetterWriter(kafka_settings(config))


def rota_credentials(config: SidecarConfig) -> "Credentials":
    """Return the credentials for Rota's servers."""
    from rota_sidecar.engines.rota.connection import Credentials

    security, tls = config.security, config.security.rota_tls
    return Credentials(
        tls=tls.is_on,
        ca_file=tls.ca_file,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        token_file=security.token_file,
    )


def fleet_credentials(config: SidecarConfig) -> "Credentials":
    """Return the credentials for Fleet: those for Rota's servers, with Fleet's token if there is one."""
    credentials = rota_credentials(config)
    own = config.fleet.token_file
    return credentials if own is None else replace(credentials, token_file=own)


def kafka_settings(config: SidecarConfig) -> "KafkaSettings":
    """Return how to connect to Kafka's brokers."""
    from rota_sidecar.engines.kafka.settings import KafkaSettings, Kerberos, Sasl, TlsFiles

    security, sasl, tls = config.security, config.security.sasl, config.security.tls
    if sasl.oauth.token_endpoint_url:
        login = Sasl(sasl.mechanism, tokens=token_provider(sasl.oauth))
    else:
        kerberos = Kerberos(sasl.kerberos.principal, sasl.kerberos.keytab, sasl.kerberos.service_name)
        login = Sasl(
            sasl.mechanism, sasl.username, sasl.password, sasl.username_file, sasl.password_file, kerberos
        )
    return KafkaSettings(
        tuple(config.backend.bootstrap_servers),
        config.member.client_id,
        TlsFiles(tls.ca_file, tls.certificate_file, tls.key_file) if tls.is_on else None,
        login if sasl.mechanism else None,
        security.is_insecure,
        config.backend.kafka_properties,
    )


@cache
def token_provider(oauth: OAuthConfig) -> "TokenProvider":
    """Return the provider of bearer tokens: one for all connections of the process, which share a token."""
    from rota_service.oauth_provider import Clocks, TokenProvider
    from rota_service.oauth_sources import TokenEndpoint, source_for

    endpoint = TokenEndpoint(
        oauth.token_endpoint_url,
        oauth.client_id,
        oauth.client_secret,
        oauth.client_id_file,
        oauth.client_secret_file,
        oauth.scope,
        oauth.ca_file,
    )
    clocks = Clocks(wall_s, time.monotonic)  # noqa: TID251  given to all who need it from here
    return TokenProvider(source_for(endpoint), clocks, LOG.warning)


def kafka_property_problem(config: SidecarConfig) -> str:
    """Return why Kafka's client refuses a property of --config; empty: it accepts them, or there are none."""
    if not config.backend.kafka_properties:
        return ""
    from rota_sidecar.engines.kafka.clients import property_refusal, uses_python_client

    mechanism = config.security.sasl.mechanism
    if uses_python_client(mechanism):
        return property_refusal(mechanism)
    from rota_sidecar.engines.kafka.property_check import property_problem

    return property_problem(config.backend.kafka_properties)


def chance() -> float:
    """Draw a random number from 0 up to 1."""
    return random.random()


def wall_s() -> float:
    """Read the wall clock, in seconds."""
    return time.time()  # noqa: TID251  given to all who need it from here


def wall_ms() -> int:
    """Read the wall clock, in milliseconds."""
    return int(wall_s() * 1000)
