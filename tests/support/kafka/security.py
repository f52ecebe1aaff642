"""
Logins of a broker: anonymous in plain text, a user with a password (SCRAM) over TLS, users with client certificates
and passwords under access control, or users of a Kerberos realm or with bearer tokens under access control.

The second kind presents a certificate that is its own authority: one file to hand to clients, made by the JDK's
`keytool`, valid for the addresses that tests dial. The third one has an authority, made by OpenSSL. The secrets here
guard brokers that live for a test.
"""

import shutil
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.certificates import Authority, Issued
from tests.support.kerberos.realm import REALM, SERVICE, Realm
from tests.support.network import HERE
from tests.support.processes import ProcessFailed
from tests.support.unavailable import Unavailable

SecurityName = Literal["plaintext", "scram-tls", "guarded", "kerberos", "kerberos-tls", "oauth", "oauth-tls"]

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
VALID_DAYS = "3650"


class Plaintext:
    """Anonymous connections in plain text."""

    protocol = "PLAINTEXT"
    # The host in the brokers' addresses.
    host = HERE.address

    def settings(self, listeners: Sequence[str]) -> dict[str, str]:
        """The brokers' properties for these listeners."""
        return {}

    def format_arguments(self) -> list[str]:
        """Users that are written into the first metadata record when a broker's folder is formatted."""
        return []

    def client_config(self) -> dict[str, str]:
        """The properties of a librdkafka client."""
        return {"security.protocol": self.protocol}

    def tls(self) -> ssl.SSLContext | None:
        """Open a plain socket to the broker."""
        return None

    def java_options(self) -> list[str]:
        """Options of the Java of brokers and clients."""
        return []

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
    host: str = HERE.address

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
            **self.keystore_settings(),
        }

    def keystore_settings(self) -> dict[str, str]:
        """The brokers' properties for their certificate."""
        return {
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

    def java_options(self) -> list[str]:
        return []

    def describe(self) -> str:
        return f"{self.protocol}, {' or '.join(MECHANISMS)}, user {self.user}, password {self.password}, CA {self.ca}"


@dataclass(frozen=True)
class Guarded:
    """
    TLS with client certificates, passwords by PLAIN and SCRAM, and rules of what each user may do.

    `admin` may do everything. `user` may do nothing, until a test allows it. `authority` issues certificates.
    """

    authority: Authority
    keystore: Path
    client: Issued
    user: str = "rota"
    password: str = "rota-password"
    admin: str = "admin"
    admin_password: str = "admin-password"
    protocol: str = "SASL_SSL"
    host: str = HERE.address

    @classmethod
    def make(cls, folder: Path, addresses: Sequence[str]) -> "Guarded":
        """Make the authority, and the certificates of the brokers, valid for these addresses, and of the clients."""
        authority = Authority(folder / "authority")
        names = ["DNS:localhost", *(f"IP:{address}" for address in sorted(set(addresses)))]
        broker = authority.issue("broker", names)
        keystore = folder / "broker.pem"
        keystore.write_bytes(broker.key.read_bytes() + broker.certificate.read_bytes())
        return cls(authority, keystore, authority.issue("client"))

    @property
    def ca(self) -> Path:
        return self.authority.certificate

    def settings(self, listeners: Sequence[str]) -> dict[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in self._users().items())
        modules = {"PLAIN": f"{PLAIN_MODULE} required {users};"}
        modules |= dict.fromkeys(MECHANISMS, f"{LOGIN_MODULE} required;")
        ours = {
            f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": module
            for listener in listeners
            for mechanism, module in modules.items()
        }
        # Without the listener's name it would not count where there is a login, too.
        ours |= {f"listener.name.{listener.lower()}.ssl.client.auth": "required" for listener in listeners}
        return {
            **ours,
            "sasl.enabled.mechanisms": ",".join(modules),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "authorizer.class.name": AUTHORIZER,
            # The brokers' own listeners have no login.
            "super.users": f"User:{self.admin};User:ANONYMOUS",
        }

    def format_arguments(self) -> list[str]:
        logins = [f"[name={name},password={password}]" for name, password in self._users().items()]
        return [word for login in logins for how in MECHANISMS for word in ("--add-scram", f"{how}={login}")]

    def client_config(self) -> dict[str, str]:
        """As the one who may do everything."""
        return {
            "security.protocol": self.protocol,
            "sasl.mechanism": MECHANISMS[0],
            "sasl.username": self.admin,
            "sasl.password": self.admin_password,
            "ssl.ca.location": str(self.ca),
            "ssl.certificate.location": str(self.client.certificate),
            "ssl.key.location": str(self.client.key),
        }

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.client.certificate, self.client.key)
        return context

    def java_options(self) -> list[str]:
        return []

    def describe(self) -> str:
        mine = f"certificate {self.client.certificate}, key {self.client.key}, CA {self.ca}"
        logins = ", ".join(f"user {name}, password {password}" for name, password in self._users().items())
        return f"{self.protocol}, PLAIN or {' or '.join(MECHANISMS)}, {logins}, {mine}"

    def _users(self) -> dict[str, str]:
        return {self.admin: self.admin_password, self.user: self.password}


@dataclass(frozen=True)
class Kerberos:
    """
    Users of a Kerberos realm, with or without TLS, and rules of what each user may do.

    `user` may do nothing, until a test allows it. Tests administrate over the brokers' own listener, which has no login:
    confluent-kafka's wheels have no GSSAPI.
    """

    realm: Realm
    keytab: Path
    user_keytab: Path
    certificate: ScramTls | None
    user: str = "rota"
    # The host of the brokers' principal.
    host: str = SERVICE.partition("/")[2]

    @classmethod
    def make(cls, folder: Path, certificate: ScramTls | None) -> "Kerberos":
        """Start a KDC that knows the brokers and the user."""
        realm = Realm.make(folder / "kerberos")
        return cls(realm, realm.add(SERVICE), realm.add(cls.user), certificate)

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.certificate is None else "SASL_SSL"

    @property
    def ca(self) -> Path | None:
        """The file that clients trust; None without TLS."""
        return None if self.certificate is None else self.certificate.ca

    def settings(self, listeners: Sequence[str]) -> dict[str, str]:
        # Not an initiator: a broker that accepts tickets needs its keytab alone, and starts without the KDC.
        module = (
            f"{KERBEROS_MODULE} required useKeyTab=true storeKey=true isInitiator=false "
            f'keyTab="{self.keytab}" principal="{SERVICE}@{REALM}";'
        )
        return {
            **({} if self.certificate is None else self.certificate.keystore_settings()),
            **{f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config": module for listener in listeners},
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }

    def format_arguments(self) -> list[str]:
        return []

    def client_config(self) -> dict[str, str]:
        """As the one who may do everything, over the brokers' own listener."""
        return {"security.protocol": "PLAINTEXT"}

    def tls(self) -> ssl.SSLContext | None:
        return None if self.certificate is None else self.certificate.tls()

    def java_options(self) -> list[str]:
        return [f"-Djava.security.krb5.conf={self.realm.config}"]

    def java_properties(self) -> list[str]:
        """The properties of a Java client, as the user."""
        login = f'useKeyTab=true storeKey=true keyTab="{self.user_keytab}" principal="{self.user}@{REALM}"'
        trust = [] if self.ca is None else ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        return [
            f"security.protocol={self.protocol}",
            "sasl.mechanism=GSSAPI",
            "sasl.kerberos.service.name=kafka",
            f"sasl.jaas.config={KERBEROS_MODULE} required {login};",
            *trust,
        ]

    def describe(self) -> str:
        return f"{self.protocol}, GSSAPI, user {self.user}, keytab {self.user_keytab}, KRB5_CONFIG={self.realm.config}, CA {self.ca}"


@dataclass(frozen=True)
class OAuth:
    """
    Unsecured bearer tokens, and passwords by PLAIN and SCRAM, under access control; over TLS with an authority.

    The subject of a token is its user. `admin` may do everything. Others may do nothing, until a test allows it.
    """

    authority: Authority | None
    keystore: Path | None
    user: str = "rota"
    password: str = "rota-password"
    admin: str = "admin"
    admin_password: str = "admin-password"
    host: str = HERE.address

    @classmethod
    def make(cls, folder: Path, addresses: Sequence[str], *, tls: bool) -> "OAuth":
        """Make the choice; with TLS an authority, and the brokers' certificate, valid for these addresses."""
        if not tls:
            return cls(None, None)
        authority = Authority(folder / "authority")
        names = ["DNS:localhost", *(f"IP:{address}" for address in sorted(set(addresses)))]
        broker = authority.issue("broker", names)
        keystore = folder / "broker.pem"
        keystore.write_bytes(broker.key.read_bytes() + broker.certificate.read_bytes())
        return cls(authority, keystore)

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.authority is None else "SASL_SSL"

    @property
    def ca(self) -> Path | None:
        return None if self.authority is None else self.authority.certificate

    def settings(self, listeners: Sequence[str]) -> dict[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in self._users().items())
        modules = {
            "PLAIN": f"{PLAIN_MODULE} required {users};",
            # The broker gets a token for itself too, when it starts.
            "OAUTHBEARER": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";',
            **dict.fromkeys(MECHANISMS, f"{LOGIN_MODULE} required;"),
        }
        ours = {
            f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": module
            for listener in listeners
            for mechanism, module in modules.items()
        }
        if self.keystore is not None:
            ours |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.keystore)}
        return {
            **ours,
            "sasl.enabled.mechanisms": ",".join(modules),
            "authorizer.class.name": AUTHORIZER,
            # The brokers' own listeners have no login.
            "super.users": f"User:{self.admin};User:ANONYMOUS",
        }

    def format_arguments(self) -> list[str]:
        logins = [f"[name={name},password={password}]" for name, password in self._users().items()]
        return [word for login in logins for how in MECHANISMS for word in ("--add-scram", f"{how}={login}")]

    def client_config(self) -> dict[str, str]:
        """As the one who may do everything, with a password."""
        tls = {} if self.ca is None else {"ssl.ca.location": str(self.ca)}
        return {
            "security.protocol": self.protocol,
            "sasl.mechanism": MECHANISMS[0],
            "sasl.username": self.admin,
            "sasl.password": self.admin_password,
            **tls,
        }

    def java_options(self) -> list[str]:
        return []

    def java_properties(self, subject: str) -> list[str]:
        """The properties of a Java client with unsecured tokens of this subject."""
        tls = [] if self.ca is None else ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        return [
            f"security.protocol={self.protocol}",
            "sasl.mechanism=OAUTHBEARER",
            f'sasl.jaas.config={OAUTH_MODULE} required unsecuredLoginStringClaim_sub="{subject}";',
            *tls,
        ]

    def tls(self) -> ssl.SSLContext | None:
        return None if self.ca is None else ssl.create_default_context(cafile=str(self.ca))

    def describe(self) -> str:
        logins = ", ".join(f"user {name}, password {password}" for name, password in self._users().items())
        return f"{self.protocol}, OAUTHBEARER with unsecured tokens, PLAIN or {' or '.join(MECHANISMS)}, {logins}, CA {self.ca}"

    def _users(self) -> dict[str, str]:
        return {self.admin: self.admin_password, self.user: self.password}


Security = Plaintext | ScramTls | Guarded | Kerberos | OAuth


def make_security(name: SecurityName, folder: Path, addresses: Sequence[str]) -> Security:
    """The choice by its name; `folder` keeps its files, `addresses` are those that clients dial."""
    match name:
        case "plaintext":
            return Plaintext()
        case "scram-tls":
            return ScramTls.make(folder, addresses)
        case "guarded":
            return Guarded.make(folder, addresses)
        case "kerberos":
            return Kerberos.make(folder, None)
        case "kerberos-tls":
            return Kerberos.make(folder, ScramTls.make(folder, addresses))
        case "oauth" | "oauth-tls":
            return OAuth.make(folder, addresses, tls=name == "oauth-tls")


def _keytool(*arguments: str) -> None:
    program = shutil.which("keytool")
    if program is None:
        raise Unavailable("no `keytool` on PATH to make the brokers' certificate: it comes with every JDK")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise ProcessFailed(
            f"keytool {arguments[0]} ended with code {done.returncode}: {done.stdout.strip()}"
        )
