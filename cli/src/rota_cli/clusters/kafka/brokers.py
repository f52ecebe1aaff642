"""
Connection to Kafka brokers through confluent-kafka: settings, timeouts and translation of errors.

librdkafka retries without end; here every wait ends with `--timeout`. librdkafka reports connection errors to a callback
only; a timeout's message includes the last one.
"""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rota.producer.kafka_errors import error_in
from rota_cli.clusters.bearer_tokens import OAUTHBEARER, provider_of
from rota_cli.clusters.clocks import Clocks
from rota_cli.clusters.connection import KERBEROS, Connection, KerberosLogin, SaslLogin
from rota_cli.errors import Failure, NotReachable, group_not_empty, unknown_group
from rota_service.oauth_provider import TokenProvider

Config = dict[str, Any]
Answer = TypeVar("Answer")
# Before the first group request of a cluster's life, a broker creates __consumer_offsets.
RETRIABLE_CODES = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
UNREACHABLE_CODES = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
)
RETRY_INTERVAL_S = 0.2


class Brokers:
    """The brokers of one cluster, and an admin client to them."""

    def __init__(self, connection: Connection, clocks: Clocks) -> None:
        self.connection = connection
        self.clocks = clocks
        self._client: AdminClient | None = None
        self._client_errors: list[KafkaError] = []
        # One token for all clients of a command.
        self._tokens: TokenProvider | None = None

    @property
    def admin(self) -> AdminClient:
        """The admin client; raise NotReachable if no broker accepts a connection."""
        if self._client is None:
            self._check_reachable()
            config: Config = {**self.config(), "error_cb": self._client_errors.append}
            self._client = AdminClient(config)
        return self._client

    def config(self) -> Config:
        """Return the connection settings of every librdkafka client. Raises NotReachable, Failure if there is no token."""
        connection = self.connection
        tls, login = connection.tls, connection.login
        config: Config = {
            "bootstrap.servers": connection.servers,
            "client.id": "rota-cli",
            # The command prints the error once; librdkafka would log it repeatedly.
            "log_level": 0,
            "security.protocol": ("sasl_" if login else "") + ("ssl" if tls else "plaintext"),
        }
        if tls:
            config["ssl.ca.location"] = str(connection.ca_file) if connection.ca_file else "probe"
        if connection.certificate_file is not None:
            config["ssl.certificate.location"] = str(connection.certificate_file)
            config["ssl.key.location"] = str(connection.key_file)
        if login is not None:
            config |= {"sasl.mechanism": login.mechanism, **self._credentials(login)}
        return config

    def _credentials(self, login: SaslLogin) -> Config:
        if login.mechanism == KERBEROS:
            return _kerberos_config(login.kerberos)
        if login.mechanism != OAUTHBEARER:
            return {"sasl.username": login.username, "sasl.password": login.password}
        self._tokens = self._tokens or provider_of(login.oauth, self.clocks)
        return {"oauth_cb": self._tokens.callback}

    def _check_reachable(self) -> None:
        servers = self.connection.servers.split(",")
        for server in servers:
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection(
                    (host.strip("[]"), int(port)), self.connection.timeout_s / len(servers)
                ).close()
            except OSError:
                continue
            return
        raise NotReachable(
            f"cannot connect to {self.connection.servers}: check the address and that Kafka is running (see `rota doctor`)"
        )

    def result(self, ask: Callable[[], "Future[Answer]"], group_id: str = "") -> Answer:
        """
        Call until the answer is final: "not yet" errors are retried until the timeout. Raises the translated error
        otherwise.
        """
        deadline_s = self.clocks.monotonic_s() + self.connection.timeout_s
        while True:
            left_s = max(deadline_s - self.clocks.monotonic_s(), 0.001)
            try:
                return ask().result(left_s)
            except TimeoutError:
                raise self.timeout_error("no answer") from None
            except KafkaException as error:
                late = self.clocks.monotonic_s() + RETRY_INTERVAL_S > deadline_s
                if error.args[0].code() not in RETRIABLE_CODES or late:
                    raise self.translate_error(error, group_id) from None
            threading.Event().wait(RETRY_INTERVAL_S)

    def translate_error(self, exception: KafkaException, group_id: str = "") -> Exception:
        """Translate an error of librdkafka into one with a remedy."""
        error: KafkaError = exception.args[0]
        # A commit without a member id is rejected as unknown member if the group has members.
        if group_id and error.code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
            return group_not_empty(group_id)
        if group_id and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return unknown_group(group_id, self.connection.servers)
        if error.code() in UNREACHABLE_CODES:
            return self.timeout_error(error.str())
        return error_in(exception, self.connection.servers)

    def timeout_error(self, reason: str) -> Failure:
        """Build the error for a timeout, with the cause that librdkafka reported, if any."""
        servers = self.connection.servers
        if self._client is not None:
            self._client.poll(0)
        for error in self._client_errors:
            if error.code() == KafkaError._AUTHENTICATION:
                return Failure(
                    f"{servers} rejected the SASL login ({error.str()}): check --sasl-mechanism and the flags of the login"
                )
            if error.code() == KafkaError._SSL:
                return Failure(
                    f"the TLS handshake with {servers} failed ({error.str()}): check --tls-ca, --tls-cert and --tls-key"
                )
        return NotReachable(
            f"{servers} did not answer within {self.connection.timeout_s:g} s ({reason}): check that it is a Kafka listener and whether it "
            "requires TLS (--tls-ca) or SASL (--sasl-mechanism), or raise --timeout"
        )


def _kerberos_config(login: KerberosLogin) -> Config:
    """Return librdkafka's properties of the login. Raises Failure if this build of librdkafka has no Kerberos."""
    try:
        # The way to ask librdkafka for a feature; confluent-kafka cannot query the list.
        AdminClient({"builtin.features": "sasl_gssapi", "log_level": 0})
    except KafkaException:
        raise Failure(
            "this confluent-kafka is built without Kerberos, as its wheels are: build it from source against a librdkafka "
            "with libsasl2 (pip install --no-binary confluent-kafka confluent-kafka), or use SCRAM"
        ) from None
    config: Config = {"sasl.kerberos.service.name": login.service_name}
    if login.principal:
        config["sasl.kerberos.principal"] = login.principal
    if login.keytab is not None:
        config["sasl.kerberos.keytab"] = str(login.keytab)
    else:
        # librdkafka runs this command before it logs in, by default kinit; the tickets of the cache are there already.
        config["sasl.kerberos.kinit.cmd"] = "true"
    return config
