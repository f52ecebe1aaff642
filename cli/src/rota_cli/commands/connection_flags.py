"""
Flags of every command that connects to a server, declared once; see `flags`. Their names are those of the sidecar's
flags.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rota_cli.clusters.bearer_tokens import SECRET_VARIABLE, OAuthFlags, secret_of_environment
from rota_cli.clusters.connection import (
    ADDRESS_FILE,
    DEFAULT_SERVERS,
    MECHANISMS,
    SASL_PASSWORD,
    SASL_USERNAME,
    Connection,
    KerberosLogin,
    SaslLogin,
    parse_address,
    resolve_servers,
    sasl_login,
    validate,
)
from rota_cli.clusters.port import Cluster

PANEL = "Connection"


def _flag(name: str, help_text: str, *more: str, **options: Any) -> Any:  # noqa: ANN401  typer's own words
    """Return an option of the connection panel, which an environment variable can set too."""
    variable = f"ROTA_{name.upper().replace('-', '_')}"
    return typer.Option(
        f"--{name}",
        *more,
        envvar=variable,
        help=help_text,
        rich_help_panel=PANEL,
        show_envvar=False,
        **options,
    )


@dataclass(frozen=True, slots=True)
class ConnectionFlags:
    """Flags of every command that connects to a cluster."""

    bootstrap_servers: Annotated[
        str,
        _flag(
            "bootstrap-servers",
            "rota://HOST:PORT for Rota, HOST:PORT or kafka://HOST:PORT for Kafka; separate brokers with commas.",
            "-b",
            show_default=f"the address in {ADDRESS_FILE}, else {DEFAULT_SERVERS}",
        ),
    ] = ""
    coordinator_address: Annotated[
        str,
        _flag("coordinator-address", "Rota coordinator of groups whose records are in Kafka."),
    ] = ""
    tls: Annotated[bool, _flag("tls", "Connect with TLS; implied by --tls-ca, --tls-cert and --tls-key.")] = (
        False
    )
    tls_ca: Annotated[
        Path | None, _flag("tls-ca", "CA certificates to trust (PEM); defaults to those of the system.")
    ] = None
    tls_cert: Annotated[Path | None, _flag("tls-cert", "Client certificate (PEM).")] = None
    tls_key: Annotated[Path | None, _flag("tls-key", "Private key of the client certificate (PEM).")] = None
    token_file: Annotated[
        Path | None, _flag("token-file", "File with the bearer token for Rota's servers.")
    ] = None
    sasl_mechanism: Annotated[
        str, _flag("sasl-mechanism", f"SASL mechanism for Kafka: {', '.join(MECHANISMS)}.")
    ] = ""
    sasl_username_file: Annotated[
        Path | None,
        _flag("sasl-username-file", f"File with the SASL username; or set {SASL_USERNAME}."),
    ] = None
    sasl_password_file: Annotated[
        Path | None,
        _flag("sasl-password-file", f"File with the SASL password; or set {SASL_PASSWORD}."),
    ] = None
    sasl_oauthbearer_token_endpoint_url: Annotated[
        str,
        _flag(
            "sasl-oauthbearer-token-endpoint-url",
            "OAUTHBEARER: token endpoint, or file:///PATH of a file with a token.",
        ),
    ] = ""
    sasl_oauthbearer_client_id: Annotated[
        str, _flag("sasl-oauthbearer-client-id", "OAUTHBEARER: client id at the token endpoint.")
    ] = ""
    sasl_oauthbearer_client_secret_file: Annotated[
        Path | None,
        _flag(
            "sasl-oauthbearer-client-secret-file",
            f"OAUTHBEARER: file with the client secret; or set {SECRET_VARIABLE}.",
        ),
    ] = None
    sasl_oauthbearer_scope: Annotated[
        str, _flag("sasl-oauthbearer-scope", "OAUTHBEARER: scope to request at the token endpoint.")
    ] = ""
    sasl_oauthbearer_tls_ca: Annotated[
        Path | None,
        _flag(
            "sasl-oauthbearer-tls-ca",
            "OAUTHBEARER: CA certificates to trust for the token endpoint (PEM); defaults to those of the system.",
        ),
    ] = None
    sasl_kerberos_service_name: Annotated[
        str, _flag("sasl-kerberos-service-name", "Service name in the brokers' Kerberos principals.")
    ] = "kafka"
    sasl_kerberos_principal: Annotated[
        str,
        _flag("sasl-kerberos-principal", "Kerberos principal; defaults to that of the credential cache."),
    ] = ""
    sasl_kerberos_keytab: Annotated[
        Path | None,
        _flag("sasl-kerberos-keytab", "Keytab of the principal; defaults to the credential cache."),
    ] = None
    insecure: Annotated[
        bool, _flag("insecure", "Allow tokens and passwords to be sent to other machines without TLS.")
    ] = False
    timeout: Annotated[float, _flag("timeout", "Seconds to wait for a response.", min=0.1, max=3600)] = 10.0

    def connection(self) -> Connection:
        """Build and validate the connection; raise WrongUsage or NotFound."""
        servers, source = resolve_servers(self.bootstrap_servers)
        connection = Connection(
            parse_address("--bootstrap-servers", servers),
            source,
            parse_address("--coordinator-address", self.coordinator_address)
            if self.coordinator_address
            else "",
            self.tls or any((self.tls_ca, self.tls_cert, self.tls_key)),
            self.tls_ca,
            self.tls_cert,
            self.tls_key,
            self.token_file,
            self._login(),
            self.timeout,
            self.insecure,
        )
        validate(connection)
        return connection

    def _login(self) -> SaslLogin | None:
        kerberos = KerberosLogin(
            self.sasl_kerberos_service_name, self.sasl_kerberos_principal, self.sasl_kerberos_keytab
        )
        return sasl_login(
            self.sasl_mechanism, self.sasl_username_file, self.sasl_password_file, self._oauth(), kerberos
        )

    def _oauth(self) -> OAuthFlags:
        return OAuthFlags(
            self.sasl_oauthbearer_token_endpoint_url,
            self.sasl_oauthbearer_client_id,
            self.sasl_oauthbearer_client_secret_file,
            self.sasl_oauthbearer_scope,
            self.sasl_oauthbearer_tls_ca,
            secret_of_environment(),
        )

    def open(self) -> Cluster:
        """Open the cluster of these flags."""
        connection = self.connection()
        # Only commands that connect load the servers' clients.
        from rota_cli.clusters.open import open_cluster

        return open_cluster(connection)
