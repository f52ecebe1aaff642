"""
Rules between values of the configuration, each broken one reported in one sentence.

`loading` applies them to every configuration that it makes; the bounds of a single value are in `flags`. Which strategies
are installed is known to `__main__` and to `fleet.reconfigure`, which apply that rule.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from rota_service.addresses import is_loopback
from rota_service.oauth_urls import is_file_url
from rota_service.oauth_urls import url_problem as oauth_url_problem
from rota_service.private_files import FILE_MODE
from rota_sidecar.config import flags
from rota_sidecar.config.flags import KERBEROS, MECHANISMS, OAUTHBEARER, SASL_PASSWORD, SASL_USERNAME
from rota_sidecar.config.oauth_flags import (
    CLIENT_ID,
    CLIENT_ID_FILE,
    CLIENT_SECRET_FILE,
    CLIENT_SECRET_VARIABLE,
    TOKEN_ENDPOINT_URL,
)
from rota_sidecar.config.parsing import ROTA_SCHEME
from rota_sidecar.config.sidecar_config import (
    BackendConfig,
    KerberosConfig,
    OAuthConfig,
    SaslConfig,
    SidecarConfig,
    TlsConfig,
)
from rota_sidecar.config.urls import url_problem

# Matches a flag that does not exist on purpose, a login in an address, and a line of a login module.
SECRET = re.compile(
    r"^--?(?:sasl-)?(?:oauthbearer-)?(?:password|username|user|token|secret|client-secret)(?:=|$)|://[^/]*@"
    r"|\b(?:password|token|secret)\s*=",
    re.IGNORECASE,
)


def problem(config: SidecarConfig) -> str:
    """Return the first broken rule; empty: the values fit together."""
    return (
        _backend_problem(config.backend)
        or _property_problem(config.backend)
        or _group_problem(config)
        or _security_problem(config)
        or _sasl_problem(config)
        or _listener_problem(config)
        or _delivery_problem(config)
        or _fleet_problem(config)
    )


def assignor_problem(names: Sequence[str], strategies: Collection[str]) -> str:
    """Return why these strategies cannot be offered, where `strategies` are installed; empty: they can."""
    if not names:
        return "name at least one strategy"
    if len(set(names)) < len(names):
        return "a strategy is listed twice"
    unknown = sorted(set(names) - set(strategies))
    if unknown:
        return f"unknown strategy {', '.join(unknown)}; expected one of {', '.join(sorted(strategies))}"
    return ""


def secret_in(arguments: Sequence[str]) -> str:
    """Return why arguments that hold a secret are refused; empty: they hold none."""
    if any(SECRET.search(argument) for argument in arguments):
        return (
            "an argument looks like a secret, and every process on this machine can read arguments; give tokens and "
            f"logins as files (--token-file, --sasl-password-file) or as variables ({SASL_PASSWORD})"
        )
    return ""


def _backend_problem(backend: BackendConfig) -> str:
    servers = backend.bootstrap_servers
    if not servers:
        return "--bootstrap-servers is empty; expected rota://HOST:PORT, or HOST:PORT for Kafka"
    if len({address.startswith(ROTA_SCHEME) for address in servers}) > 1:
        return "--bootstrap-servers has addresses of Rota and of Kafka; records are stored in one of them"
    coordination, has_coordinator = backend.coordination, bool(backend.coordinator_addresses)
    if backend.stores_in_rota:
        if coordination == "kafka":
            return "--coordination kafka requires Kafka brokers in --bootstrap-servers, not rota:// addresses"
        if has_coordinator:
            return (
                "--coordinator-address is for records in Kafka; rota:// servers coordinate groups themselves"
            )
        return ""
    if coordination == "rota" and not has_coordinator:
        return "--coordination rota requires --coordinator-address when the records are in Kafka"
    if coordination != "rota" and has_coordinator:
        return (
            "--coordinator-address requires --coordination rota; without it the brokers coordinate the group"
        )
    return ""


def _property_problem(backend: BackendConfig) -> str:
    if not (backend.stores_in_rota and backend.kafka_properties):
        return ""
    names = ", ".join(sorted(backend.kafka_properties))
    return f"--config is for Kafka's client, and --bootstrap-servers are rota:// addresses; remove {names}"


def _group_problem(config: SidecarConfig) -> str:
    if not config.member.group_id:
        return "--group-id is required"
    if config.subscription.topics and config.subscription.pattern:
        return "--topics and --topic-pattern exclude each other; give one of them"
    highest_ms = config.member.heartbeat_interval_max_ms
    if config.member.heartbeat_interval_ms > highest_ms:
        return (
            f"--heartbeat-interval-ms is {config.member.heartbeat_interval_ms}; expected {highest_ms} or less, a third "
            "of the session timeout"
        )
    if config.is_static and not (config.member.instance_id or config.fleet.address):
        return "--static requires --group-instance-id, or --fleet to assign the instance name"
    return ""


def _security_problem(config: SidecarConfig) -> str:
    security, fleet = config.security, config.fleet
    wrong = _tls_problem(security.tls, "--tls") or _tls_problem(security.own_rota_tls, "--rota-tls")
    if wrong:
        return wrong
    if security.own_rota_tls.switch is False and security.own_rota_tls.has_files:
        return "--no-rota-tls and the files of --rota-tls exclude each other; omit one of them"
    rota = config.backend.rota_addresses
    if security.token_file and not (rota or fleet.address):
        return "--token-file is for Rota's servers; Kafka requires a login (--sasl-mechanism)"
    receivers = [*rota] if security.token_file else []
    if fleet.address and (fleet.token_file or security.token_file):
        receivers.append(fleet.address)
    far = [address for address in receivers if not is_loopback(address.removeprefix(ROTA_SCHEME))]
    if far and not (security.rota_tls.is_on or security.is_insecure):
        return (
            f"{far[0]} is another machine, and the token would be sent to it in clear text; add --tls or --tls-ca (or, apart "
            "from Kafka, --rota-tls or --rota-tls-ca), or --insecure to send it all the same"
        )
    return ""


def _tls_problem(tls: TlsConfig, flag: str) -> str:
    if bool(tls.certificate_file) == bool(tls.key_file):
        return ""
    missing = "key" if tls.certificate_file else "cert"
    return f"{flag}-{missing} is missing; a client certificate requires its key"


def _sasl_problem(config: SidecarConfig) -> str:
    sasl = config.security.sasl
    if not sasl.mechanism:
        without_variables = replace(sasl.oauth, client_secret="")
        if (without_variables, sasl.kerberos) != (OAuthConfig(), KerberosConfig()) or _has_password_files(
            sasl
        ):
            return f"--sasl-mechanism is missing; a login requires one of {', '.join(MECHANISMS)}"
        return ""
    if config.backend.stores_in_rota:
        return "--sasl-mechanism is for Kafka; Rota's servers accept a token (--token-file) or a client certificate"
    if sasl.kerberos != KerberosConfig() and sasl.mechanism != KERBEROS:
        return f"the flags --sasl-kerberos-... require --sasl-mechanism {KERBEROS}; give it, or omit them"
    match sasl.mechanism:
        case flags.KERBEROS:
            return _kerberos_problem(sasl)
        case flags.OAUTHBEARER:
            return _oauth_problem(sasl, insecure=config.security.is_insecure)
        case _:
            return _password_problem(sasl)


def _has_password_files(sasl: SaslConfig) -> bool:
    return bool(sasl.username_file or sasl.password_file)


def _kerberos_problem(sasl: SaslConfig) -> str:
    if _has_password_files(sasl):
        return (
            f"--sasl-mechanism {KERBEROS} has no user name and no password; give --sasl-kerberos-principal and "
            "--sasl-kerberos-keytab"
        )
    if sasl.oauth.token_endpoint_url:
        return f"{TOKEN_ENDPOINT_URL.option} requires --sasl-mechanism {OAUTHBEARER}"
    if not sasl.kerberos.service_name:
        return "--sasl-kerberos-service-name is empty; give that of the brokers' principals, such as kafka"
    return ""


def _password_problem(sasl: SaslConfig) -> str:
    if sasl.oauth.token_endpoint_url:
        return f"{TOKEN_ENDPOINT_URL.option} requires --sasl-mechanism {OAUTHBEARER}"
    if not (sasl.username or sasl.username_file):
        return f"the login requires a user name; give --sasl-username-file, or the variable {SASL_USERNAME}"
    if not (sasl.password or sasl.password_file):
        return f"the login requires a password; give --sasl-password-file, or the variable {SASL_PASSWORD}"
    return ""


def _oauth_problem(sasl: SaslConfig, *, insecure: bool) -> str:
    if _has_password_files(sasl):
        return f"--sasl-username-file and --sasl-password-file are not for {OAUTHBEARER}; remove them"
    return _token_problem(sasl.oauth, insecure=insecure)


def _token_problem(oauth: OAuthConfig, *, insecure: bool) -> str:
    url = oauth.token_endpoint_url
    if not url:
        return f"{OAUTHBEARER} requires {TOKEN_ENDPOINT_URL.option}: a token endpoint, or file:///PATH of a token"
    wrong = oauth_url_problem(url, insecure=insecure)
    if wrong:
        return f"{TOKEN_ENDPOINT_URL.option}: {wrong}"
    client = (oauth.client_id, oauth.client_id_file, oauth.client_secret_file, oauth.scope, oauth.ca_file)
    if is_file_url(url):
        return (
            f"{TOKEN_ENDPOINT_URL.option} is a file; client id, secret and scope are for a token endpoint"
            if any(client)
            else ""
        )
    if not (oauth.client_id or oauth.client_id_file):
        return f"the token endpoint requires a client id; give {CLIENT_ID.option} or {CLIENT_ID_FILE.option}"
    if not (oauth.client_secret or oauth.client_secret_file):
        return f"the token endpoint requires a secret; give {CLIENT_SECRET_FILE.option}, or the variable {CLIENT_SECRET_VARIABLE}"
    return ""


def _listener_problem(config: SidecarConfig) -> str:
    listeners = config.listeners
    if listeners.application and not is_loopback(listeners.application) and not config.security.is_insecure:
        return (
            f"--listen {listeners.application} is open to other machines, and any client there could attach as the "
            "application; give a loopback address, or --insecure to listen there all the same"
        )
    if listeners.application_socket_mode != FILE_MODE and not listeners.application_socket:
        return "--listen-socket-mode requires --listen-socket"
    if listeners.drain_socket and listeners.drain_socket == listeners.application_socket:
        return "--drain-socket and --listen-socket are the same; give each its own path"
    if not (listeners.application or listeners.application_socket or config.http_delivery.url):
        return "no application can receive records; give --listen, --listen-socket or --delivery-url"
    return ""


def _delivery_problem(config: SidecarConfig) -> str:
    topic = config.delivery.dead_letter_topic
    if topic and topic in config.subscription.topics:
        return f"--dead-letter-topic {topic} is also one of --topics; its records would be dead letters again"
    url = config.http_delivery.url
    if not url:
        return ""
    wrong = url_problem(url, insecure=config.security.is_insecure)
    if wrong:
        return f"--delivery-url: {wrong}"
    if not config.has_subscription:
        return "--delivery-url requires --topics or --topic-pattern; no application subscribes over HTTP"
    return ""


def _fleet_problem(config: SidecarConfig) -> str:
    if config.fleet.token_file and not config.fleet.address:
        return "--fleet-token-file requires --fleet"
    return ""
