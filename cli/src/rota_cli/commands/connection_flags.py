"""The flags of every command that speaks to a server, declared once; see `flags`. They are named as the sidecar's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rota_cli.clusters.connection import (
    ADDRESS_FILE,
    DEFAULT_SERVERS,
    MECHANISMS,
    SASL_PASSWORD,
    SASL_USERNAME,
    Connection,
    parse_address,
    resolve_servers,
    sasl_login,
    validate,
)
from rota_cli.clusters.port import Cluster

PANEL = "Connection"


def _flag(name: str, help_text: str, *more: str, **options: Any) -> Any:  # noqa: ANN401  typer's own words
    """An option of the panel, which can be given as a variable too."""
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
    """What was given."""

    bootstrap_servers: Annotated[
        str,
        _flag(
            "bootstrap-servers",
            "rota://HOST:PORT for Rota, HOST:PORT or kafka://HOST:PORT for Kafka; several brokers with commas.",
            "-b",
            show_default=f"what {ADDRESS_FILE} says, else {DEFAULT_SERVERS}",
        ),
    ] = ""
    coordinator_address: Annotated[
        str,
        _flag(
            "coordinator-address", "Where Rota's coordinator is, if it has the groups of records in Kafka."
        ),
    ] = ""
    tls: Annotated[
        bool, _flag("tls", "Connect with TLS; so it is as well when one of the next three is given.")
    ] = False
    tls_ca: Annotated[
        Path | None, _flag("tls-ca", "Whom to trust (PEM); without it those that the system trusts.")
    ] = None
    tls_cert: Annotated[Path | None, _flag("tls-cert", "The certificate to show (PEM).")] = None
    tls_key: Annotated[Path | None, _flag("tls-key", "The key of that certificate (PEM).")] = None
    token_file: Annotated[Path | None, _flag("token-file", "The token to show to Rota's servers.")] = None
    sasl_mechanism: Annotated[
        str, _flag("sasl-mechanism", f"How to log in to Kafka: {', '.join(MECHANISMS)}.")
    ] = ""
    sasl_username_file: Annotated[
        Path | None,
        _flag("sasl-username-file", f"The name to log in with; or the variable {SASL_USERNAME}."),
    ] = None
    sasl_password_file: Annotated[
        Path | None,
        _flag("sasl-password-file", f"The password to log in with; or the variable {SASL_PASSWORD}."),
    ] = None
    insecure: Annotated[
        bool, _flag("insecure", "Send tokens and passwords beyond this machine without TLS.")
    ] = False
    timeout: Annotated[float, _flag("timeout", "Seconds to wait for an answer.", min=0.1, max=3600)] = 10.0

    def connection(self) -> Connection:
        """What that means. Raises WrongUsage, NotFound."""
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
            sasl_login(self.sasl_mechanism, self.sasl_username_file, self.sasl_password_file),
            self.timeout,
            self.insecure,
        )
        validate(connection)
        return connection

    def open(self) -> Cluster:
        """The cluster that is named."""
        connection = self.connection()
        # Clients of servers are loaded by those commands only that speak to one.
        from rota_cli.clusters.open import open_cluster

        return open_cluster(connection)
