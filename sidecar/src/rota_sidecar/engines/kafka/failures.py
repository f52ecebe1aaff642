"""Errors of connections to brokers: Unreachable if a retry may help, else Refused, with a message that says what to check."""

import socket
import ssl

from rota_sidecar.engines.kafka.settings import Address, Sasl
from rota_sidecar.engines.port import Refused, Unreachable

Failure = Unreachable | Refused

# Reasons of TLS alerts with which a broker rejects the client certificate, or requires one.
ALERTS_ABOUT_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
# The first bytes of a TLS alert, at the position of a response's length.
TLS_ALERT = b"\x15\x03"


def connection_failure(error: OSError | EOFError, address: Address, *, encrypted: bool) -> Failure:
    """Return the failure for an error of a socket, while connecting or later."""
    match error:
        case ssl.SSLCertVerificationError():
            return Refused(
                f"the certificate of Kafka at {address} is not trusted ({error.verify_message.rstrip('.')}); "
                "check the CA file, and that the address is one of the certificate's names"
            )
        case ssl.SSLError() if any(part in (error.reason or "") for part in ALERTS_ABOUT_CERTIFICATES):
            return Refused(
                f"Kafka at {address} rejects the client certificate, or requires one ({_reason(error)}); "
                "check the client certificate and key"
            )
        case ssl.SSLError():
            return Unreachable(
                f"the TLS handshake with {address} failed ({_reason(error)}); check that its listener has TLS"
            )
        case socket.gaierror():
            return Unreachable(f"unknown host {address.host} of {address} ({error.strerror}); check the name")
        case ConnectionRefusedError():
            return Unreachable(
                f"connection refused by {address}; check the address, and that Kafka is running"
            )
        case EOFError() | ConnectionResetError() | BrokenPipeError():
            return unserved(address, encrypted=encrypted)
        case _:
            return Unreachable(
                f"{address} cannot be reached ({error.strerror or str(error) or type(error).__name__}); "
                "check the address and the network"
            )


def unserved(address: Address, *, encrypted: bool) -> Unreachable:
    """Return the failure for a connection that the broker closed before its first response."""
    return Unreachable(
        f"Kafka at {address} closed the connection before its first response; check that its listener "
        f"{'has TLS' if encrypted else 'has no TLS'}, and whether it requires a login"
    )


def lost(address: Address) -> Unreachable:
    """Return the failure for a connection that was lost after it had served."""
    return Unreachable(
        f"the connection to Kafka at {address} was lost; if that repeats, see the broker's log"
    )


def lost_with_session(address: Address) -> Unreachable:
    """Return the failure for a connection that the broker closed during a re-authentication."""
    return Unreachable(
        f"Kafka at {address} closed the connection during a re-authentication; if that repeats, check that the login is still "
        "valid, and of the same user as before"
    )


def silent(address: Address, within_s: float) -> Unreachable:
    """Return the failure for a timeout."""
    return Unreachable(
        f"Kafka at {address} did not answer within {within_s:g} s; check that it is running and not overloaded"
    )


def not_prepared(sasl: Sasl, address: Address, within_s: float) -> Unreachable:
    """Return the failure for a login whose token or ticket takes too long."""
    return no_ticket_yet(address, within_s) if sasl.tokens is None else no_token_yet(sasl.tokens, within_s)


def no_ticket_yet(address: Address, within_s: float) -> Unreachable:
    """Return the failure for a KDC that does not answer in time."""
    return Unreachable(
        f"no KDC has issued a ticket for Kafka at {address} within {within_s:g} s; check the realm's KDC in krb5.conf, "
        "and the network"
    )


def no_token_yet(tokens: object, within_s: float) -> Unreachable:
    """Return the failure for a source of tokens that takes too long."""
    return Unreachable(
        f"there is no token for the login to Kafka: {tokens} did not answer within {within_s:g} s; check that it is running"
    )


def garbled(address: Address, start: bytes) -> Failure:
    """Return the failure for bytes that are not a response of Kafka; `start` are the first ones."""
    if start.startswith(TLS_ALERT):
        return Refused(f"Kafka at {address} requires TLS; set a CA file, or use a listener without TLS")
    return Unreachable(f"the response of {address} is not one of a Kafka broker; check the address")


def too_old(address: Address, missing: list[str], oldest: str) -> Refused:
    """Return the failure for a broker that lacks API versions that a member needs."""
    return Refused(
        f"Kafka at {address} is too old: it does not support {', '.join(missing)}; use Apache Kafka {oldest} or newer"
    )


def again(failure: Failure) -> Failure:
    """Return a copy for another caller: an exception that is raised twice would have both tracebacks."""
    return type(failure)(*failure.args)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unknown").lower().replace("_", " ")
