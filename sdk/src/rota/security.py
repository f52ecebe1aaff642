"""
TLS and login under the names of Kafka's clients, for consumers and producers: `security_protocol`, `ssl_…` and `sasl_…`.

The options of both begin with these, and call `faults` when they are built. A consumer passes the files to its sidecar; a producer makes
credentials of them for Rota's log, and properties for librdkafka.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from rota.connection import Credentials
    from rota_service.oauth_sources import AnyTokenProvider

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
KERBEROS = "GSSAPI"
# The sidecar logs in for a consumer. A producer has librdkafka, whose wheels are built without Kerberos.
CONSUMER_MECHANISMS = (*MECHANISMS, KERBEROS)
FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


class SecuritySettings(TypedDict, total=False):
    """Keyword arguments that consumers and producers share; `SecurityOptions` documents each."""

    credentials: "Credentials"
    security_protocol: SecurityProtocol
    ssl_cafile: str
    ssl_certfile: str
    ssl_keyfile: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    sasl_oauth_token_provider: "AnyTokenProvider"
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_client_id: str
    sasl_oauthbearer_client_secret: str
    sasl_oauthbearer_scope: str
    sasl_oauthbearer_cafile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """Settings of a client's connections; None: not given, and derived from the others."""

    # Files of certificates, and of a token, for rota:// addresses.
    credentials: "Credentials | None" = None
    # Under the names of Kafka's clients: the files of `credentials`, and for Kafka the login.
    security_protocol: SecurityProtocol | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    # A consumer's sidecar gets name and password in its environment.
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    # Not part of the representation, which appears in exception reports.
    sasl_password: str | None = field(default=None, repr=False)
    # Bearer tokens, with OAUTHBEARER: an object with `token()`, as kafka-python's; or a token endpoint with client id, secret and
    # scope, and the CA file for it; or file:///path of a file with a token, which is followed as it changes.
    sasl_oauth_token_provider: "AnyTokenProvider | None" = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_cafile: str | None = None


def faults(options: SecurityOptions, *, has_login: bool) -> Iterator[str]:
    """Yield the faults between the settings; `has_login`: a mechanism is given, here or in another way."""
    protocol = options.security_protocol
    if protocol is not None and protocol not in PROTOCOLS:
        yield f"security_protocol is {protocol!r}: use one of {', '.join(PROTOCOLS)}"
        return
    given = [name for name in FILES if getattr(options, name)]
    if given and options.credentials is not None:
        yield f"{given[0]} and credentials are both set: give the files in one of them"
    if bool(options.ssl_certfile) != bool(options.ssl_keyfile):
        missing = "ssl_keyfile" if options.ssl_certfile else "ssl_certfile"
        yield f"{missing} is missing: a client certificate needs ssl_certfile and ssl_keyfile"
    if protocol is None:
        return
    has_authority = options.credentials is not None and options.credentials.ca_file is not None
    if (given or has_authority) and not protocol.endswith("SSL"):
        first = given[0] if given else "ca_file of credentials"
        yield f"security_protocol is {protocol!r}, but {first} is for TLS: use 'SSL' or 'SASL_SSL', or omit security_protocol"
    if has_login and not protocol.startswith("SASL"):
        yield f"security_protocol is {protocol!r}, but sasl_mechanism is set: use 'SASL_SSL' or 'SASL_PLAINTEXT'"
    if protocol.startswith("SASL") and not has_login:
        yield f"security_protocol is {protocol!r}, but sasl_mechanism is not set: use one of {', '.join(MECHANISMS)}"


def rota_faults(options: SecurityOptions) -> Iterator[str]:
    """Yield the faults of settings that only Kafka's brokers know, for a client of Rota's log."""
    if options.sasl_mechanism is not None:
        yield "sasl_mechanism is for Kafka, but bootstrap_servers is Rota's log: use credentials instead"
    elif options.security_protocol is not None and options.security_protocol.startswith("SASL"):
        yield (
            f"security_protocol is {options.security_protocol!r}, but bootstrap_servers is Rota's log, which has no SASL: "
            "use 'SSL', and credentials for a token"
        )


def uses_tls(options: SecurityOptions) -> bool:
    """Return whether the settings under Kafka's names ask for TLS."""
    protocol = options.security_protocol
    return any(getattr(options, name) for name in FILES) or (protocol or "").endswith("SSL")


def credentials_of(options: SecurityOptions) -> "Credentials | None":
    """Return the credentials for Rota's servers: those that are given, or the TLS files as credentials; None without any."""
    if options.credentials is not None or not any(getattr(options, name) for name in FILES):
        return options.credentials
    from pathlib import Path

    from rota.connection import Credentials

    ca_file, certificate_file, key_file = (
        Path(file) if (file := getattr(options, name)) else None for name in FILES
    )
    return Credentials(ca_file=ca_file, certificate_file=certificate_file, key_file=key_file)
