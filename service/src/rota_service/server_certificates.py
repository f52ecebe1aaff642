"""
TLS certificate and key of a gRPC server, and the authority of client certificates, from files.

Servers pass the credentials to gRPC when they open their port. The files are looked at before every handshake and reloaded when
they have changed, so that certificates can be renewed without a restart; an invalid version leaves the previous one in use.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from rota_service.file_versions import Version, version_of

# Maximum number of readings of files that change while they are read.
READINGS_MAX = 3


class CertificateError(Exception):
    """A certificate file is invalid; the message names the file, the problem and the remedy."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The paths from the --tls flags."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def versions(self) -> tuple[Version, ...]:
        """Return the versions of the files. Raises CertificateError."""
        named = (self.certificate, self.key, self.client_ca)
        return tuple(_version_of(path) for path in named if path is not None)


def _version_of(path: Path) -> Version:
    try:
        return version_of(path)
    except OSError as error:
        raise CertificateError(
            f"{path} cannot be read ({error.strerror}); give the path of an existing file"
        ) from None


def load(files: CertificateFiles) -> grpc.ServerCertificateConfiguration:
    """Read the files in one consistent version; raises CertificateError."""
    for _ in range(READINGS_MAX):
        before = files.versions()
        chain, key = read_pem(files.certificate), read_pem(files.key)
        roots = None if files.client_ca is None else read_pem(files.client_ca)
        error = check_files(files, roots)
        if files.versions() == before:
            if error:
                raise CertificateError(error)
            return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=roots)
    raise CertificateError(
        f"{files.certificate} and {files.key} changed while they were being read; replace them once"
    )


def read_pem(path: Path) -> bytes:
    """Return the contents of a PEM file; raises CertificateError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror}); check the --tls flags") from None
    if b"-----BEGIN " not in data:
        raise CertificateError(f"{path} is not a PEM file; it has no line that starts with -----BEGIN")
    return data


def authority_error(path: Path, pem: bytes) -> str:
    """Return why the contents of a file are no certificate authority; empty when they are one."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode())
    except (ssl.SSLError, UnicodeDecodeError):
        return f"{path} contains no readable certificate; give the PEM of a certificate authority"
    return ""


def check_files(files: CertificateFiles, roots: bytes | None) -> str:
    """Return why TLS would reject the files; empty when it would not. gRPC itself reports no reason."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if (
        files.client_ca is not None
        and roots is not None
        and (error := authority_error(files.client_ca, roots))
    ):
        return error
    asked: list[bool] = []

    def no_passphrase() -> str:
        asked.append(True)
        return ""

    try:
        context.load_cert_chain(files.certificate, files.key, no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            return f"{files.key} is encrypted; give a key without a passphrase, readable by the server only"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return f"{files.key} does not match the certificate in {files.certificate}; give a matching pair"
        return f"{files.certificate} and {files.key} contain no readable certificate and key in PEM form: {error}"
    except OSError as error:
        return f"{error.filename or files.key} cannot be read ({error.strerror})"
    return ""


class Certificates:
    """The certificate that the server presents; invariant: it is the last valid version of the files."""

    def __init__(self, files: CertificateFiles, report: Callable[[str], None]) -> None:
        self._files = files
        self._report = report
        self._last_error = ""
        self._versions = files.versions()
        self._first = load(files)

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for the server's port; gRPC calls `reload` before each handshake."""
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            self.reload,  # type: ignore[arg-type]  # the stubs omit that None is allowed: no change
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
        except CertificateError as error:
            # Only some of the files may have been replaced yet: retry at the next handshake, and report the error once.
            if str(error) != self._last_error:
                self._last_error = str(error)
                self._report(f"{error}; the previous certificate stays in use")
            return None
        self._versions, self._last_error = versions, ""
        self._report(f"{self._files.certificate} was reloaded")
        return configuration
