"""
The client's side of one login, for each mechanism: what it sends, and what the broker's verdict means. Driven by `login.py`.

A conversation is made by `conversation_of`, with the credentials of that time, for one broker and one login.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from rota_service.oauth_tokens import NoToken
from rota_sidecar.engines.kafka.failures import Failure
from rota_sidecar.engines.kafka.scram import OAUTHBEARER, exchange
from rota_sidecar.engines.kafka.settings import Address, Credentials, Sasl
from rota_sidecar.engines.port import Refused, Unreachable

if TYPE_CHECKING:
    from rota_service.oauth_provider import TokenProvider

GSSAPI = "GSSAPI"


class Conversation(Protocol):
    """The client's side of one login, whatever the mechanism."""

    @property
    def lifetime_s(self) -> float:
        """Seconds for which the credentials are valid from now on; infinity: without limit."""
        ...

    async def next(self, received: bytes | None) -> bytes | None:
        """
        Return the message to send after this one of the broker; None at first, and at the end.

        Raises Unproved, Unreachable and Refused.
        """
        ...

    def accept(self) -> None:
        """Take note that the broker has accepted the login."""
        ...

    def reject(self, address: Address) -> Failure:
        """Return the failure for a rejected login. The broker's message has no detail: it must not reveal what is wrong."""
        ...

    def close(self) -> None:
        """Release what the login holds."""
        ...


async def conversation_of(sasl: Sasl, address: Address, *, is_due: bool) -> Conversation:
    """
    Begin a login at this broker. Raises Unreachable, Refused.

    `is_due`: wait for a new token if the current one is due. The source is asked in a thread, as it may take a while.
    """
    if sasl.tokens is not None:
        credentials = await asyncio.to_thread(token_credentials, sasl.tokens, is_due=is_due)
        return BearerConversation(sasl.tokens, credentials)
    if sasl.mechanism != GSSAPI:
        return PasswordConversation(sasl.mechanism, sasl.credentials())
    # Imported late: other mechanisms need neither the library nor ctypes.
    from rota_sidecar.engines.kafka.kerberos import Login
    from rota_sidecar.engines.kafka.kerberos_login import KerberosConversation

    settings = sasl.kerberos
    return KerberosConversation(Login(settings.principal, settings.keytab, settings.service_name, address))


def token_credentials(tokens: "TokenProvider", *, is_due: bool) -> Credentials:
    """Return the subject of a token and the token; blocks while its source is asked. Raises Unreachable, Refused."""
    try:
        token = tokens.renewed() if is_due else tokens.token()
    except NoToken as failure:
        kind = Unreachable if failure.may_heal else Refused
        raise kind(f"there is no token for the login to Kafka: {failure}") from None
    return Credentials(token.subject, token.value, token.lifetime_s)


class PasswordConversation:
    """A login with user and password."""

    def __init__(self, mechanism: str, credentials: Credentials) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._exchange = exchange(mechanism, credentials)

    @property
    def lifetime_s(self) -> float:
        return self._credentials.lifetime_s

    async def next(self, received: bytes | None) -> bytes | None:
        try:
            return next(self._exchange) if received is None else self._exchange.send(received)
        except StopIteration:
            return None

    def accept(self) -> None:
        pass

    def reject(self, address: Address) -> Failure:
        return Refused(
            f"Kafka at {address} rejects the login of user {self._credentials.user!r} with {self._mechanism}; "
            "check the user and the password"
        )

    def close(self) -> None:
        self._exchange.close()


class BearerConversation(PasswordConversation):
    """A login with a bearer token, whose provider learns the broker's verdict."""

    def __init__(self, tokens: "TokenProvider", credentials: Credentials) -> None:
        super().__init__(OAUTHBEARER, credentials)
        self._tokens = tokens

    @override
    def accept(self) -> None:
        self._tokens.accept()

    @override
    def reject(self, address: Address) -> Failure:
        message = (
            f"Kafka at {address} rejects the token of {self._credentials.user!r} with {OAUTHBEARER}; check the issuer, the "
            "audience and the scope that the broker expects, and that the clocks of both machines agree"
        )
        is_replaced = self._tokens.reject(self._credentials.password)
        return Unreachable(message) if is_replaced else Refused(message)
