"""What went wrong with a connection, in a sentence that says what to do; and whether asking again may help."""

import socket
import ssl

from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.port import Refused, Unreachable

Failure = Unreachable | Refused

# The broker says so when it does not take our certificate, or misses one.
ALERTS_ABOUT_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
# The first bytes of a TLS alert, where the length of an answer should be.
TLS_ALERT = b"\x15\x03"


def connection_failure(error: OSError | EOFError, address: Address, *, encrypted: bool) -> Failure:
    """While connecting or afterwards."""
    match error:
        case ssl.SSLCertVerificationError():
            return Refused(
                f"the certificate of Kafka at {address} is not trusted ({error.verify_message.rstrip('.')}); "
                "check the CA file, and that the address is one of the certificate's names"
            )
        case ssl.SSLError() if any(part in (error.reason or "") for part in ALERTS_ABOUT_CERTIFICATES):
            return Refused(
                f"Kafka at {address} does not take our certificate, or misses one ({_reason(error)}); "
                "check the client certificate and key"
            )
        case ssl.SSLError():
            return Unreachable(
                f"no TLS connection comes about with {address} ({_reason(error)}); check that its listener has TLS"
            )
        case socket.gaierror():
            return Unreachable(f"nobody knows the host of {address} ({error.strerror}); check the name")
        case ConnectionRefusedError():
            return Unreachable(f"nobody listens at {address}; check the address, and that Kafka runs")
        case EOFError() | ConnectionResetError() | BrokenPipeError():
            return unserved(address, encrypted=encrypted)
        case _:
            return Unreachable(
                f"{address} cannot be reached ({error.strerror or str(error) or type(error).__name__}); check the address and the network"
            )


def unserved(address: Address, *, encrypted: bool) -> Unreachable:
    """The other end closed the connection, and has answered nothing yet."""
    return Unreachable(
        f"Kafka at {address} closed the connection before it served us; check that its listener "
        f"{'has TLS' if encrypted else 'has no TLS'}, and whether it asks for a login"
    )


def lost(address: Address) -> Unreachable:
    """The connection ended after it had served for a while."""
    return Unreachable(
        f"the connection to Kafka at {address} ended; if that goes on, look at that broker's log"
    )


def silent(address: Address, within_s: float) -> Unreachable:
    """Time is up."""
    return Unreachable(
        f"Kafka at {address} did not answer within {within_s:g} s; check that it runs and is not overloaded"
    )


def garbled(address: Address, start: bytes) -> Failure:
    """What came is no answer of Kafka."""
    if start.startswith(TLS_ALERT):
        return Refused(f"Kafka at {address} speaks TLS only; set a CA file, or use its listener without TLS")
    return Unreachable(f"{address} does not answer as a Kafka broker does; check the address")


def too_old(address: Address, missing: list[str], oldest: str) -> Refused:
    """We ask for more than it knows."""
    return Refused(
        f"Kafka at {address} is too old: it does not know {', '.join(missing)}; use Apache Kafka {oldest} or newer"
    )


def again(failure: Failure) -> Failure:
    """The same for one more who waits: an exception that is raised twice would collect both places."""
    return type(failure)(*failure.args)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unknown").lower().replace("_", " ")
