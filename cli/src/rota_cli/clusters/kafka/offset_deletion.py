"""
Deletes committed offsets on Kafka through kafka-python's admin client, because confluent-kafka does not have this request.

Imported late, by this one call.
"""

import logging
from collections.abc import Collection
from typing import Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import KafkaError, RequestTimedOutError
from kafka.net.sasl.oauth import AbstractTokenProvider
from typing_extensions import override

from rota.records import TopicPartition
from rota_cli.clusters.bearer_tokens import OAUTHBEARER, provider_of
from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.connection import KERBEROS, Connection, SaslLogin
from rota_cli.clusters.port import subscribed_topics
from rota_cli.errors import Failure, NotReachable, group_error
from rota_service.oauth_provider import TokenProvider

# Its log would be a second line for an error of the command.
logging.getLogger("kafka").addHandler(logging.NullHandler())


def delete_offsets(
    connection: Connection, group_id: str, partitions: Collection[TopicPartition]
) -> frozenset[str]:
    """Delete committed offsets; return the topics to which members subscribe: their offsets are kept."""
    try:
        with KafkaAdminClient(**_settings(connection)) as client:
            found = client.delete_group_offsets(group_id, [KafkaTopicPartition(*each) for each in partitions])
    except KafkaError as error:
        raise _translate_error(error, connection, group_id) from None
    codes = {TopicPartition(each.topic, each.partition): kind.errno for each, kind in found.items()}
    return subscribed_topics(codes, group_id, connection.servers)


def _settings(connection: Connection) -> dict[str, Any]:
    timeout_ms = int(connection.timeout_s * 1000)
    login = connection.login
    settings: dict[str, Any] = {
        "bootstrap_servers": connection.servers.split(","),
        "client_id": "rota-cli",
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
        "security_protocol": ("SASL_" if login else "") + ("SSL" if connection.tls else "PLAINTEXT"),
    }
    if connection.ca_file is not None:
        settings["ssl_cafile"] = str(connection.ca_file)
    if connection.certificate_file is not None:
        settings["ssl_certfile"] = str(connection.certificate_file)
        settings["ssl_keyfile"] = str(connection.key_file)
    if login is not None and login.mechanism == KERBEROS:
        raise Failure(
            "kafka-python, which deletes committed offsets, cannot use a keytab: delete them with kafka-consumer-groups "
            "--delete-offsets, or use SCRAM"
        )
    if login is not None:
        settings |= {"sasl_mechanism": login.mechanism, **_credentials(login)}
    return settings


def _credentials(login: SaslLogin) -> dict[str, Any]:
    if login.mechanism == OAUTHBEARER:
        return {"sasl_oauth_token_provider": CurrentToken(provider_of(login.oauth, system_clocks()))}
    return {"sasl_plain_username": login.username, "sasl_plain_password": login.password}


class CurrentToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's way to ask for a token."""

    def __init__(self, tokens: TokenProvider) -> None:
        super().__init__()
        self._tokens = tokens

    @override
    def token(self) -> str:
        return self._tokens.token().value


def _translate_error(error: KafkaError, connection: Connection, group_id: str) -> Exception:
    code = getattr(error, "errno", None)
    # The client times out with the error that brokers answer with.
    if isinstance(error, RequestTimedOutError) or (code is None and error.retriable):
        return NotReachable(
            f"{connection.servers} did not answer within {connection.timeout_s:g} s ({error}): check that the group's "
            "coordinator is running, or raise --timeout"
        )
    if code is not None:
        return group_error(code, group_id, connection.servers)
    return Failure(f"{connection.servers} did not delete the offsets ({error}): see the broker's log")
