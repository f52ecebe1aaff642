"""
SASL with Kerberos (GSSAPI, RFC 4752) as a client speaks it: the exchange of tokens, then the offer of security layers.

Decides and performs nothing: `exchange` drives a context that `kerberos_login.py` gives it, and `failure_of` turns codes of
Kerberos into failures with a remedy. Kafka authenticates with GSSAPI and has no security layer; TLS encrypts.
"""

from pathlib import Path
from typing import NamedTuple, Protocol

from rota_sidecar.engines.kafka.scram import Exchange, Unproved
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.port import Refused, Unreachable

MECHANISM = "GSSAPI"
# Bits of security layers in the server's offer.
NO_LAYER = 1
OFFER_BYTES = 4
# The answer: no security layer, and messages of no size, for there are none. The authorization identity after it is empty: the
# principal's own.
NO_LAYER_ANSWER = bytes([NO_LAYER, 0, 0, 0])

# Error codes of krb5.h: those of the KDC's protocol (RFC 4120) count from its first one.
PROTOCOL = -1_765_328_384
NAME_EXPIRED = PROTOCOL + 1
CLIENT_UNKNOWN = PROTOCOL + 6
SERVICE_UNKNOWN = PROTOCOL + 7
ENCRYPTION_UNSUPPORTED = PROTOCOL + 14
CLIENT_REVOKED = PROTOCOL + 18
KEY_EXPIRED = PROTOCOL + 23
PREAUTHENTICATION_FAILED = PROTOCOL + 24
BAD_INTEGRITY = PROTOCOL + 31
TICKET_EXPIRED = PROTOCOL + 32
TICKET_NOT_YET_VALID = PROTOCOL + 33
CLOCK_SKEW = PROTOCOL + 37
# Codes of the library.
CONFIG_UNREADABLE = -1_765_328_248
CONFIG_MALFORMED = -1_765_328_247
CACHE_NOT_FOUND = -1_765_328_243
REALM_UNKNOWN = -1_765_328_230
KDC_UNREACHABLE = -1_765_328_228
CACHE_FILE_MISSING = -1_765_328_189
REALM_UNRESOLVED = -1_765_328_164
NO_DEFAULT_REALM = -1_765_328_160


class SecurityContext(Protocol):
    """A GSSAPI context with the broker: `gssapi.Context` as far as the exchange needs it."""

    established: bool
    mutual: bool

    def step(self, token: bytes) -> bytes:
        """Take the broker's token, none at first; return the next one to send."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Verify a message of the broker and return its content."""
        ...

    def wrap(self, content: bytes) -> bytes:
        """Sign a message for the broker."""
        ...


class Login(NamedTuple):
    """Whose login it is, and to which service."""

    principal: str
    # None: the tickets are those of the credential cache.
    keytab: Path | None
    service_name: str
    address: Address

    @property
    def service(self) -> str:
        """The broker's principal, without its realm."""
        return f"{self.service_name}/{self.address.host}"

    @property
    def who(self) -> str:
        """The client, for error messages."""
        if self.principal:
            return f"principal {self.principal!r}"
        return "the credential cache" if self.keytab is None else f"the keytab {self.keytab}"


def exchange(context: SecurityContext) -> Exchange:
    """Start the exchange with a context that has sent nothing yet. Raises Unproved, and what the context raises."""
    token = context.step(b"")
    while not context.established:
        token = context.step((yield token))
    if not context.mutual:
        raise Unproved("it does not authenticate itself")
    # The last step may have nothing to send; the server waits for a message all the same, before it offers layers.
    offer = context.unwrap((yield token))
    yield context.wrap(layer_answer(offer))


def layer_answer(offer: bytes) -> bytes:
    """Return the answer to the server's offer of security layers. Raises Unproved without one of no layer."""
    if len(offer) != OFFER_BYTES:
        raise Unproved("its offer of security layers is malformed")
    if not offer[0] & NO_LAYER:
        raise Unproved("it requires a security layer; set its quality of protection (sasl.qop) to auth")
    return NO_LAYER_ANSWER


def failure_of(code: int, text: str, login: Login) -> Unreachable | Refused:
    """
    Return the failure for an error of the library before the broker is asked; `text` is the library's message.

    Unreachable, which is retried, for what heals without a change of the settings.
    """
    remedy = _refusals(login).get(code)
    if remedy is not None:
        return Refused(f"the Kerberos login to Kafka at {login.address} is impossible ({text}); {remedy}")
    remedy = _outages(login).get(code, "check the keytab, krb5.conf and the log of the KDC")
    return Unreachable(f"the Kerberos login to Kafka at {login.address} fails now ({text}); {remedy}")


def _refusals(login: Login) -> dict[int, str]:
    configuration = "check krb5.conf, or the file that KRB5_CONFIG names"
    keytab = f"write the keytab {login.keytab} again, with the principal's current key"
    locked = f"have the administrator of the realm unlock or renew {login.who}"
    # The library looks for the principal in the default realm, and names a cache that it has not filled.
    realm = f"check that the keytab {login.keytab} is of the default realm of krb5.conf, or give the principal with its realm"
    return {
        **({} if login.keytab is None else dict.fromkeys((CACHE_NOT_FOUND, CACHE_FILE_MISSING), realm)),
        CLIENT_UNKNOWN: f"check {login.who} and the realm",
        SERVICE_UNKNOWN: (
            f"check the service name {login.service_name!r}, and that {login.address.host} is the host of the broker's "
            "principal"
        ),
        ENCRYPTION_UNSUPPORTED: keytab,
        PREAUTHENTICATION_FAILED: keytab,
        BAD_INTEGRITY: keytab,
        NAME_EXPIRED: locked,
        CLIENT_REVOKED: locked,
        KEY_EXPIRED: locked,
        CONFIG_UNREADABLE: configuration,
        CONFIG_MALFORMED: configuration,
        NO_DEFAULT_REALM: configuration,
    }


def _outages(login: Login) -> dict[int, str]:
    network = "check the realm's KDC in krb5.conf, and the network"
    clocks = "synchronize the clocks of this machine, the KDC and the brokers, as NTP does"
    tickets = "run kinit, or give a keytab"
    return {
        KDC_UNREACHABLE: network,
        REALM_UNKNOWN: network,
        REALM_UNRESOLVED: network,
        CLOCK_SKEW: clocks,
        TICKET_NOT_YET_VALID: clocks,
        TICKET_EXPIRED: tickets,
        CACHE_NOT_FOUND: tickets,
        CACHE_FILE_MISSING: tickets,
    }
