"""How to connect to Kafka. The sidecar's options fill these in; every connection reads the files they name anew."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from rota_service.addresses import is_loopback_host
from rota_sidecar.engines.port import Refused

PORT_MAX = 65_535


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """From `host:port`, with an IPv6 address in brackets; raises ValueError with a sentence."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (
            not bare
            or not port.isdecimal()
            or not 0 < int(port) <= PORT_MAX
            or (":" in bare and bare == host)
        ):
            raise ValueError(f"{text!r} is no address of a Kafka broker; give host:port, such as kafka:9092")
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether what is sent there stays on this machine."""
        return is_loopback_host(self.host)

    @override
    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. Without `ca` the system's authorities are trusted; the other two go together."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError(
                "a client certificate needs its key, and a key its certificate; give both files or none"
            )


class Credentials(NamedTuple):
    """Who logs in."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Sasl:
    """A login. Each part is a value that came in the environment, or a file, which comes first. Never in arguments."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    user_file: Path | None = None
    password_file: Path | None = None

    def credentials(self) -> Credentials:
        """What they are now; raises Refused."""
        return Credentials(
            _secret(self.user, self.user_file, "user"),
            _secret(self.password, self.password_file, "password"),
        )


def _secret(value: str, file: Path | None, what: str) -> str:
    if file is not None:
        try:
            # Editors and `echo` end a file with a newline.
            value = file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise Refused(
                f"{file}, which should hold the Kafka {what}, cannot be read ({error.strerror})"
            ) from None
        except UnicodeDecodeError:
            raise Refused(
                f"{file}, which should hold the Kafka {what}, is not UTF-8 text; write it anew"
            ) from None
    if not value:
        problem = "there is none" if file is None else f"{file} is empty"
        raise Refused(
            f"the login to Kafka needs a {what}, but {problem}; give it in a file or in the environment"
        )
    return value


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """One cluster, and how we present ourselves to it."""

    bootstrap: tuple[str, ...]
    client_id: str = "rota"
    # None: the connection is not encrypted.
    tls: TlsFiles | None = None
    # None: no login.
    sasl: Sasl | None = None
    # Only for networks that nobody else can listen to.
    allow_plain_text_password: bool = False

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("no Kafka broker is named; give at least one host:port")
        for address in self.bootstrap:
            Address.parse(address)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where to ask first."""
        return tuple(Address.parse(address) for address in self.bootstrap)
