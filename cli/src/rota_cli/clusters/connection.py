"""Validated connection settings: server addresses, TLS and credentials. `commands/connection_flags.py` builds them from flags."""

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from rota.addresses import SCHEME, address_of, is_rota
from rota.errors import InvalidArgument
from rota_cli.clusters.bearer_tokens import OAUTHBEARER, OAuthFlags
from rota_cli.errors import NotFound, WrongUsage
from rota_service.addresses import is_loopback

ADDRESS_FILE = Path(".rota/address")
DEFAULT_SERVERS = "rota://127.0.0.1:7070"
KERBEROS = "GSSAPI"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, KERBEROS)
# What a mechanism sends as it is.
EXPOSED = {"PLAIN": "the password", OAUTHBEARER: "the token"}
SASL_USERNAME, SASL_PASSWORD = "ROTA_SASL_USERNAME", "ROTA_SASL_PASSWORD"


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """Kerberos identity for Kafka (GSSAPI)."""

    # The first part of the brokers' principals.
    service_name: str = "kafka"
    # Empty: that of the credential cache.
    principal: str = ""
    # None: the credential cache.
    keytab: Path | None = None


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """
    SASL credentials for Kafka.

    Invariant: with OAUTHBEARER `oauth` takes the place of user and password, and with GSSAPI `kerberos`.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    oauth: OAuthFlags = field(default_factory=OAuthFlags)
    kerberos: KerberosLogin = KerberosLogin()


@dataclass(frozen=True, slots=True)
class Connection:
    """Validated settings of one connection. Invariant: the flags fit the kind of server. Files are read on use."""

    # Normalized as by `rota.addresses.address_of`.
    servers: str
    # Source of the address, for messages.
    source: str
    # Rota's coordinators of groups whose records are in Kafka; empty if the servers coordinate the groups
    # too.
    coordinator: str = ""
    tls: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    login: SaslLogin | None = None
    timeout_s: float = 10.0
    # Allow tokens and passwords to be sent to other machines without TLS.
    insecure: bool = False

    @property
    def is_rota(self) -> bool:
        """True if records are in Rota's own log."""
        return is_rota(self.servers)

    @property
    def trusted_ca_file(self) -> Path | None:
        """With TLS: the trusted CA certificates, by default those of the system."""
        if not self.tls or self.ca_file is not None:
            return self.ca_file
        system = ssl.get_default_verify_paths().cafile
        if system is None:
            raise WrongUsage("this system has no default CA bundle: pass one with --tls-ca")
        return Path(system)


def parse_address(flag: str, given: str) -> str:
    """Normalize an address as the SDK does; raise WrongUsage with the name of the flag."""
    try:
        return address_of(given)
    except InvalidArgument as error:
        raise WrongUsage(f"{flag}: {error}") from None


def is_same_address(written: str, servers: str) -> bool:
    """Compare the text of an address file with normalized servers."""
    try:
        return address_of(written.strip() or DEFAULT_SERVERS) == servers
    except InvalidArgument:
        return False


def resolve_servers(given: str) -> tuple[str, str]:
    """
    Return the servers and their source: the flag or variable, else the address file of `rota up` in this folder, else
    the default.
    """
    if given:
        return given, "--bootstrap-servers or ROTA_BOOTSTRAP_SERVERS"
    try:
        return ADDRESS_FILE.read_text().strip() or DEFAULT_SERVERS, str(ADDRESS_FILE)
    except FileNotFoundError:
        return DEFAULT_SERVERS, "the default"
    except OSError as error:
        raise WrongUsage(
            f"cannot read {ADDRESS_FILE} ({error.strerror}): fix its permissions or pass --bootstrap-servers"
        ) from None


def validate(connection: Connection) -> None:
    """Raise WrongUsage or NotFound for settings that are invalid or contradict each other."""
    wrong = (
        _coordinator_problem(connection)
        or _identity_problem(connection)
        or _exposed_secret_problem(connection)
    )
    if wrong:
        raise WrongUsage(wrong)
    keytab = None if connection.login is None else connection.login.kerberos.keytab
    files = (
        connection.ca_file,
        connection.certificate_file,
        connection.key_file,
        connection.token_file,
        keytab,
    )
    for file in files:
        if file is not None and not file.is_file():
            raise NotFound(f"file {file} does not exist: pass an existing file or omit the flag")


def _coordinator_problem(connection: Connection) -> str:
    if not connection.coordinator:
        return ""
    if connection.is_rota:
        return "--coordinator-address applies to records in Kafka only: a rota:// server coordinates its own groups"
    if not is_rota(connection.coordinator):
        return f"invalid --coordinator-address {connection.coordinator}: expected rota://HOST:PORT"
    return ""


def _identity_problem(connection: Connection) -> str:
    if (connection.certificate_file is None) != (connection.key_file is None):
        missing = "--tls-cert" if connection.certificate_file is None else "--tls-key"
        return f"{missing} is missing: --tls-cert and --tls-key must be given together"
    speaks_rota = connection.is_rota or bool(connection.coordinator)
    if connection.token_file is not None and not speaks_rota:
        return "--token-file applies to Rota's servers only: for Kafka, use --sasl-mechanism"
    return "" if connection.login is None else _login_problem(connection, connection.login)


def _login_problem(connection: Connection, login: SaslLogin) -> str:
    if connection.is_rota:
        return "--sasl-mechanism applies to Kafka only: for Rota's servers, use --token-file or --tls-cert"
    if login.mechanism not in MECHANISMS:
        return f"unsupported --sasl-mechanism {login.mechanism}: expected one of {', '.join(MECHANISMS)}"
    if login.mechanism == OAUTHBEARER:
        return login.oauth.problem(insecure=connection.insecure)
    if login.oauth.is_given:
        return f"the flags of bearer tokens apply to --sasl-mechanism {OAUTHBEARER} only"
    return _credentials_problem(login)


def _credentials_problem(login: SaslLogin) -> str:
    if login.mechanism == KERBEROS:
        if login.kerberos.principal and login.kerberos.keytab is None:
            return "--sasl-kerberos-keytab is missing: a principal needs its keytab, or omit both to use the credential cache"
        return ""
    if login.kerberos != KerberosLogin():
        return f"the options --sasl-kerberos-... apply to --sasl-mechanism {KERBEROS} only: omit them"
    for what, value, flag, variable in (
        ("username", login.username, "--sasl-username-file", SASL_USERNAME),
        ("password", login.password, "--sasl-password-file", SASL_PASSWORD),
    ):
        if not value:
            return f"the SASL {what} is missing: pass {flag} or set {variable}"
    return ""


def _exposed_secret_problem(connection: Connection) -> str:
    """Describe a secret that would be sent to another machine in plain text; empty if none would."""
    secret = "the token" if connection.token_file is not None else ""
    if connection.login is not None:
        secret = EXPOSED.get(connection.login.mechanism, secret)
    if not secret or connection.tls or connection.insecure:
        return ""
    far = [
        host
        for each in (connection.servers, connection.coordinator)
        for host in each.removeprefix(SCHEME).split(",")
        if host and not is_loopback(host)
    ]
    if not far:
        return ""
    return f"refusing to send {secret} to {far[0]} in plain text: add --tls or --tls-ca, or --insecure to allow it"


def sasl_login(
    mechanism: str,
    username_file: Path | None,
    password_file: Path | None,
    oauth: OAuthFlags,
    kerberos: KerberosLogin,
) -> SaslLogin | None:
    """Return the login of flags and variables; None without a mechanism."""
    has_files = bool(username_file or password_file)
    if not mechanism:
        if has_files or oauth.is_given or kerberos != KerberosLogin():
            raise WrongUsage(f"--sasl-mechanism is missing: expected one of {', '.join(MECHANISMS)}")
        return None
    if mechanism == KERBEROS:
        if has_files:
            raise WrongUsage(
                f"--sasl-mechanism {KERBEROS} has no user name and no password: use --sasl-kerberos-principal and "
                "--sasl-kerberos-keytab"
            )
        return SaslLogin(mechanism, oauth=oauth, kerberos=kerberos)
    if mechanism == OAUTHBEARER:
        if has_files:
            raise WrongUsage(f"--sasl-username-file and --sasl-password-file do not apply to {OAUTHBEARER}")
        return SaslLogin(mechanism, oauth=oauth, kerberos=kerberos)
    username, password = (
        _read_secret(username_file, SASL_USERNAME),
        _read_secret(password_file, SASL_PASSWORD),
    )
    return SaslLogin(mechanism, username, password, oauth, kerberos)


def _read_secret(file: Path | None, variable: str) -> str:
    if file is None:
        return os.environ.get(variable, "")
    try:
        return file.read_text().strip()
    except OSError as error:
        raise NotFound(
            f"cannot read {file} ({error.strerror}): check that it exists and is readable"
        ) from None
