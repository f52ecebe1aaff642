"""TLS contexts of connections. The files are read for each connection, so that renewed certificates need no restart."""

import ssl

from rota_sidecar.engines.kafka.settings import TlsFiles
from rota_sidecar.engines.port import Refused


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """Create a TLS context from the files. Raises Refused, which names the file."""
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except ssl.SSLError:
        raise Refused(
            f"{files.ca} has no readable certificate; give the PEM file of a certificate authority"
        ) from None
    except OSError as error:
        raise Refused(f"the CA file {files.ca} cannot be read ({error.strerror}); check its path") from None
    if files.certificate is not None and files.key is not None:
        _present(context, files)
    return context


def _present(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Add the client certificate, for brokers that request one. Raises Refused."""
    asked: list[bool] = []

    def no_passphrase() -> str:
        # Without this callback OpenSSL would prompt on the terminal.
        asked.append(True)
        return ""

    pair = f"{files.certificate} and {files.key}"
    try:
        context.load_cert_chain(str(files.certificate), files.key, no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            raise Refused(f"{files.key} is encrypted with a passphrase; give a key without one") from None
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise Refused(f"{pair} do not match; give a certificate and its own key") from None
        raise Refused(f"{pair} have no readable certificate and key; give PEM files") from None
    except OSError as error:
        raise Refused(f"one of {pair} cannot be read ({error.strerror}); check their paths") from None
