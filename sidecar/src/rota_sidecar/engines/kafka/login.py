"""
SASL login at a broker: the first exchange on an open connection, and again before a session expires.

`prepare` makes the first message, before there is a connection; `log_in` sends it and all that follow. Called by `connection.py`
and by `reauthentication.py`.
"""

from typing import NamedTuple, Protocol

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from rota_sidecar.engines.kafka.conversations import GSSAPI, Conversation, conversation_of
from rota_sidecar.engines.kafka.scram import MECHANISMS as EXCHANGES
from rota_sidecar.engines.kafka.scram import OAUTHBEARER, Unproved
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings, Sasl
from rota_sidecar.engines.port import Refused, Unreachable

MECHANISMS = (*EXCHANGES, GSSAPI)
ILLEGAL_SASL_STATE = 34
SASL_AUTHENTICATION_FAILED = 58
# Mechanisms that send a secret as it is.
EXPOSED = {
    "PLAIN": (
        "the password would be sent to {address} in plain text, readable on the network; "
        "use TLS or SCRAM, or allow plain-text passwords"
    ),
    OAUTHBEARER: (
        "the token would be sent to {address} in plain text, readable on the network; "
        "use TLS, or allow plain-text passwords"
    ),
}


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
    if sasl.mechanism in EXPOSED and settings.tls is None and not address.is_loopback:
        if settings.allow_plain_text_password:
            return
        raise Refused(EXPOSED[sasl.mechanism].format(address=address))


class PreparedLogin(NamedTuple):
    """A login up to its first message, which is not sent yet."""

    mechanism: str
    conversation: Conversation
    message: bytes

    def close(self) -> None:
        """Release what the login holds."""
        self.conversation.close()


async def prepare(sasl: Sasl, address: Address, *, is_due: bool = False) -> PreparedLogin:
    """
    Read the credentials, or get a token, or a ticket for the broker at this address. Raises Unreachable, Refused.

    Called before the connection is opened: a broker does not wait for long, and a token endpoint or a KDC may take a while.
    `is_due`: wait for a new token if the current one is due.
    """
    conversation = await conversation_of(sasl, address, is_due=is_due)
    try:
        message = await conversation.next(None)
    except BaseException:
        conversation.close()
        raise
    assert message is not None, "each mechanism begins with a message of the client"
    return PreparedLogin(sasl.mechanism, conversation, message)


async def log_in(connection: Channel, login: PreparedLogin, within_s: float) -> float:
    """
    Log in on an open connection; return the lifetime of the session in seconds, 0: without limit.

    Raises Refused if the broker rejects the login or does not prove that it knows the secret, and Unreachable.
    """
    mechanism, conversation, message = login
    await _choose(connection, mechanism, within_s)
    while True:
        answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=message), within_s)
        if answer.error_code == SASL_AUTHENTICATION_FAILED:
            raise conversation.reject(connection.address)
        if answer.error_code:
            raise Unreachable(
                f"Kafka at {connection.address} cannot verify the login now (error {answer.error_code})"
            )
        try:
            following = await conversation.next(bytes(answer.auth_bytes))
        except Unproved as error:
            secret = "its key" if mechanism == GSSAPI else "the password"
            raise Refused(
                f"Kafka at {connection.address} has not proved with {mechanism} that it knows {secret} "
                f"({error}); check that this is your broker"
            ) from None
        if following is None:
            conversation.accept()
            return float(answer.session_lifetime_ms) / 1000
        message = following


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
