"""
The server's TLS certificate and key, and the authority of client certificates. Reloaded when the files change, so
that certificates can be renewed without a restart.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from rota_coordinator.security.errors import SecurityError
from rota_coordinator.security.versions import Version, version_of

# Files that are replaced while they are read are read so often.
READINGS_MAX = 3


@dataclass(frozen=True, slots=True)
class Files:
    """The paths from the --tls flags."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def versions(self) -> tuple[Version, ...]:
        named = (self.certificate, self.key, self.client_ca)
        return tuple(version_of(path) for path in named if path is not None)


def load(files: Files) -> grpc.ServerCertificateConfiguration:
    """Read the files in one consistent version; raises `SecurityError`."""
    for _ in range(READINGS_MAX):
        before = files.versions()
        chain, key = read_pem(files.certificate), read_pem(files.key)
        roots = None if files.client_ca is None else read_pem(files.client_ca)
        error = check_files(files, roots)
        if files.versions() == before:
            if error:
                raise SecurityError(error)
            return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=roots)
    raise SecurityError(
        f"{files.certificate} and {files.key} changed while they were being read; replace them once"
    )


def read_pem(path: Path) -> bytes:
    """The bytes of a file that looks right."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path} cannot be read ({error.strerror}); check the --tls flags") from None
    if b"-----BEGIN " not in data:
        raise SecurityError(f"{path} is not a PEM file; it has no line that starts with -----BEGIN")
    return data


def check_files(files: Files, roots: bytes | None) -> str:
    """Return why TLS would reject the files; empty when it would not. gRPC itself reports no reason."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if roots is not None:
        try:
            context.load_verify_locations(cadata=roots.decode())
        except (ssl.SSLError, UnicodeDecodeError):
            return (
                f"{files.client_ca} contains no readable certificate; give the PEM of a certificate authority"
            )
    asked: list[bool] = []

    def no_passphrase() -> str:
        asked.append(True)
        return ""

    try:
        context.load_cert_chain(files.certificate, files.key, no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            return (
                f"{files.key} is encrypted; give a key without a passphrase, readable by the coordinator only"
            )
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return f"{files.key} does not match the certificate in {files.certificate}; give a matching pair"
        return f"{files.certificate} and {files.key} contain no readable certificate and key in PEM form: {error}"
    except OSError as error:
        return f"{error.filename or files.key} cannot be read ({error.strerror})"
    return ""


class Certificates:
    """The certificate that the server presents; invariant: it is the last valid version of the files."""

    def __init__(self, files: Files, report: Callable[[str], None]) -> None:
        self._files = files
        self._report = report
        self._last_error = ""
        self._versions = files.versions()
        self._first = load(files)

    def credentials(self) -> grpc.ServerCredentials:
        """For the server's port."""
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            self.reload,  # type: ignore[arg-type]  # the types forget that None is an answer: no change
            require_client_authentication=self._files.client_ca is not None,
        )

    def reload(self) -> grpc.ServerCertificateConfiguration | None:
        """
        Return the new configuration if the files have changed. gRPC calls this before every handshake, in its thread.
        """
        try:
            versions = self._files.versions()
            if versions == self._versions:
                return None
            configuration = load(self._files)
        except SecurityError as error:
            # Half of them may be replaced yet. It is looked at again at the next handshake, and said once.
            if str(error) != self._last_error:
                self._last_error = str(error)
                self._report(f"{error}; the previous certificate stays in use")
            return None
        self._versions, self._last_error = versions, ""
        self._report(f"{self._files.certificate} was reloaded")
        return configuration
