"""
Who may speak to a broker, and how: anybody in plain text, or a user who proves a password (SCRAM) over TLS.

The brokers present a certificate that is its own authority: one file to hand to clients, made by the JDK's
`keytool`, valid for the addresses that tests dial. The secrets here guard brokers that live for a test.
"""

import shutil
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.processes import ProcessFailed
from tests.support.unavailable import Unavailable

SecurityName = Literal["plaintext", "scram-tls"]

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
VALID_DAYS = "3650"


class Plaintext:
    """Everybody may connect."""

    protocol = "PLAINTEXT"

    def settings(self, listeners: Sequence[str]) -> dict[str, str]:
        """The brokers' properties for these listeners."""
        return {}

    def format_arguments(self) -> list[str]:
        """What is written into the first metadata record when a broker's folder is formatted."""
        return []

    def client_config(self) -> dict[str, str]:
        """The properties of a librdkafka client."""
        return {"security.protocol": self.protocol}

    def tls(self) -> ssl.SSLContext | None:
        """How to open a socket to the broker: as it is."""
        return None

    def describe(self) -> str:
        return "plain text, no user"


@dataclass(frozen=True)
class ScramTls:
    """One user, over TLS. `ca` is the file that clients trust, `keystore` the brokers' own."""

    ca: Path
    keystore: Path
    user: str = "rota"
    password: str = "rota-password"
    keystore_password: str = "rota-keystore"
    protocol: str = "SASL_SSL"

    @classmethod
    def make(cls, folder: Path, addresses: Sequence[str]) -> "ScramTls":
        """Make the certificate, valid for these addresses."""
        made = cls(ca=folder / "ca.pem", keystore=folder / "broker.p12")
        store = [
            *("-storetype", "PKCS12"),
            *("-keystore", str(made.keystore)),
            *("-storepass", made.keystore_password),
        ]
        names = ",".join(["dns:localhost", *(f"ip:{address}" for address in sorted(set(addresses)))])
        key = ["-keyalg", "EC", "-groupname", "secp256r1", "-validity", VALID_DAYS]
        _keytool(
            "-genkeypair", "-alias", "broker", "-dname", "CN=rota-tests", "-ext", f"san={names}", *key, *store
        )
        _keytool("-exportcert", "-rfc", "-alias", "broker", "-file", str(made.ca), *store)
        return made

    def settings(self, listeners: Sequence[str]) -> dict[str, str]:
        # The broker takes the login module per listener and mechanism only, not once for all.
        modules = {
            f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": f"{LOGIN_MODULE} required;"
            for listener in listeners
            for mechanism in MECHANISMS
        }
        return {
            **modules,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.keystore),
            "ssl.keystore.password": self.keystore_password,
        }

    def format_arguments(self) -> list[str]:
        login = f"[name={self.user},password={self.password}]"
        return [word for mechanism in MECHANISMS for word in ("--add-scram", f"{mechanism}={login}")]

    def client_config(self) -> dict[str, str]:
        return {
            "security.protocol": self.protocol,
            "sasl.mechanism": MECHANISMS[0],
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.ca),
        }

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def describe(self) -> str:
        return f"{self.protocol}, {' or '.join(MECHANISMS)}, user {self.user}, password {self.password}, CA {self.ca}"


Security = Plaintext | ScramTls


def make_security(name: SecurityName, folder: Path, addresses: Sequence[str]) -> Security:
    """The choice by its name; `folder` keeps its files, `addresses` are those that clients dial."""
    return Plaintext() if name == "plaintext" else ScramTls.make(folder, addresses)


def _keytool(*arguments: str) -> None:
    program = shutil.which("keytool")
    if program is None:
        raise Unavailable("no `keytool` on PATH to make the brokers' certificate: it comes with every JDK")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise ProcessFailed(
            f"keytool {arguments[0]} ended with code {done.returncode}: {done.stdout.strip()}"
        )
