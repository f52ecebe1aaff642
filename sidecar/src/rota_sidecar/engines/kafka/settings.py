"""Connection settings for Kafka, filled in from the sidecar's configuration. Each connection reads the files that they name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from rota_service.addresses import is_loopback_host
from rota_sidecar.engines.port import Refused

if TYPE_CHECKING:
    from rota_service.oauth_provider import TokenProvider

PORT_MAX = 65_535


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse `host:port`; an IPv6 address is in brackets. Raises ValueError."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (
            not bare
            or not port.isdecimal()
            or not 0 < int(port) <= PORT_MAX
            or (":" in bare and bare == host)
        ):
            raise ValueError(
                f"invalid address {text!r} of a Kafka broker; give host:port, such as kafka:9092"
            )
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Return true for an address of this machine only."""
        return is_loopback_host(self.host)

    @override
    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """
    PEM files. Without `ca` the authorities of the operating system are trusted.

    Invariant: `certificate` and `key` are both set, or neither.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client certificate and its key go together; give both files or neither")


class Credentials(NamedTuple):
    """User and password of a login, and for how many seconds they are valid."""

    user: str
    password: str
    lifetime_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Kerberos:
    """
    A login with Kerberos (GSSAPI). Without a keytab the tickets are those of the credential cache, `$KRB5CCNAME`.

    Realms and their KDCs are in `krb5.conf`, or the file that `$KRB5_CONFIG` names.
    """

    # Empty: the first one of the keytab, or that of the credential cache.
    principal: str = ""
    keytab: Path | None = None
    # The first part of the brokers' principals; the second one is the host of the address that is dialled.
    service_name: str = "kafka"


@dataclass(frozen=True, slots=True)
class Sasl:
    """
    A SASL login. User and password come from files, or else from the environment; never from command-line arguments.

    GSSAPI has neither: its settings are those of `kerberos`.
    Invariant: `tokens` is set for OAUTHBEARER only, where it takes the place of user and password.
    """

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    user_file: Path | None = None
    password_file: Path | None = None
    kerberos: Kerberos = Kerberos()
    tokens: "TokenProvider | None" = field(default=None, repr=False)

    def credentials(self) -> Credentials:
        """Read the credentials. Raises Refused if one is empty or unreadable."""
        return Credentials(
            _secret(self.user, self.user_file, "user"),
            _secret(self.password, self.password_file, "password"),
        )


def _secret(value: str, file: Path | None, what: str) -> str:
    if file is not None:
        try:
            # Editors and `echo` append a newline.
            value = file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise Refused(f"the file {file} of the Kafka {what} cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise Refused(f"the file {file} of the Kafka {what} is not UTF-8 text; write it again") from None
    if not value:
        problem = "it is not set" if file is None else f"{file} is empty"
        raise Refused(
            f"the login to Kafka needs a {what}, but {problem}; set it in a file or in the environment"
        )
    return value


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """A Kafka cluster and the login to it. Invariant: `bootstrap` has at least one valid `host:port`."""

    bootstrap: tuple[str, ...]
    client_id: str = "rota"
    # None: plain text.
    tls: TlsFiles | None = None
    # None: no login.
    sasl: Sasl | None = None
    # Allows SASL/PLAIN without TLS; for private networks only.
    allow_plain_text_password: bool = False
    # Further properties of librdkafka, each one known to it.
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("no bootstrap server is set; give at least one host:port of a Kafka broker")
        for address in self.bootstrap:
            Address.parse(address)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The bootstrap servers."""
        return tuple(Address.parse(address) for address in self.bootstrap)
