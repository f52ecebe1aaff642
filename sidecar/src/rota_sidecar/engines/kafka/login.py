"""SASL login at a broker, the first exchange on an open connection. Called by `connect` of `connection.py`."""

from typing import Protocol

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from rota_sidecar.engines.kafka.scram import MECHANISMS, Unproved, exchange
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings, Sasl
from rota_sidecar.engines.port import Refused, Unreachable

ILLEGAL_SASL_STATE = 34
SASL_AUTHENTICATION_FAILED = 58


class Channel(Protocol):
    """An open connection to one broker, before the login: `connection.Connection` as far as a login needs it."""

    @property
    def address(self) -> Address:
        """The broker's address, for error messages."""
        ...

    async def ask(self, message: ApiMessage, within_s: float) -> ApiMessage:
        """Send a request and return its answer. Raises Unreachable, Refused."""
        ...


def refuse_unsafe(settings: KafkaSettings, address: Address) -> None:
    """Reject a login that is unsupported or would expose the password, before anything is sent. Raises Refused."""
    sasl = settings.sasl
    if sasl is None:
        return
    if sasl.mechanism not in MECHANISMS:
        raise Refused(
            f"the SASL mechanism {sasl.mechanism} is not supported; use one of {', '.join(MECHANISMS)}"
        )
    if sasl.mechanism == "PLAIN" and settings.tls is None and not address.is_loopback:
        if settings.allow_plain_text_password:
            return
        raise Refused(
            f"the password would be sent to {address} in plain text, readable on the network; "
            "use TLS or SCRAM, or allow plain-text passwords"
        )


async def log_in(connection: Channel, sasl: Sasl, within_s: float) -> None:
    """
    Log in on an open connection.

    Raises Refused if the broker rejects the login or does not prove that it knows the password, and Unreachable.
    """
    credentials = sasl.credentials()
    await _choose(connection, sasl.mechanism, within_s)
    conversation = exchange(sasl.mechanism, credentials)
    ours = next(conversation)
    while True:
        answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=ours), within_s)
        if answer.error_code == SASL_AUTHENTICATION_FAILED:
            # The broker's message has no detail: it must not reveal which of the two is wrong.
            raise Refused(
                f"Kafka at {connection.address} rejects the login of user {credentials.user!r} with {sasl.mechanism}; "
                "check the user and the password"
            )
        if answer.error_code:
            raise Unreachable(
                f"Kafka at {connection.address} cannot verify the login now (error {answer.error_code})"
            )
        try:
            ours = conversation.send(bytes(answer.auth_bytes))
        except StopIteration:
            return
        except Unproved as error:
            raise Refused(
                f"Kafka at {connection.address} has not proved with {sasl.mechanism} that it knows the password "
                f"({error}); check that this is your broker"
            ) from None


async def _choose(connection: Channel, mechanism: str, within_s: float) -> None:
    answer = await connection.ask(SaslHandshakeRequest(mechanism=mechanism), within_s)
    match answer.error_code:
        case 0:
            return
        case code if code == ILLEGAL_SASL_STATE:
            raise Refused(
                f"Kafka at {connection.address} has no SASL on that listener; "
                "use a listener with SASL, or omit the login"
            )
        case _:
            raise Refused(
                f"Kafka at {connection.address} does not support the SASL mechanism {mechanism}; "
                f"it supports {', '.join(answer.mechanisms) or 'no mechanism that it names'}"
            )
