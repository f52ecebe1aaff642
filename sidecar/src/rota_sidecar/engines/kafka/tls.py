"""The encryption of a connection, from files that are read anew each time: whoever renews them starts nothing anew."""

import ssl

from rota_sidecar.engines.kafka.settings import TlsFiles
from rota_sidecar.engines.port import Refused


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """Raises Refused with what is wrong with which file."""
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except ssl.SSLError:
        raise Refused(
            f"{files.ca} holds no certificate that can be read; give the PEM of a certificate authority"
        ) from None
    except OSError as error:
        raise Refused(
            f"the CA file {files.ca} cannot be read ({error.strerror}); check where it lies"
        ) from None
    if files.certificate is not None and files.key is not None:
        _present(context, files)
    return context


def _present(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Show our own certificate to who asks for it."""
    asked: list[bool] = []

    def no_passphrase() -> str:
        # Without it OpenSSL would ask on the terminal, and wait.
        asked.append(True)
        return ""

    pair = f"{files.certificate} and {files.key}"
    try:
        context.load_cert_chain(str(files.certificate), files.key, no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            raise Refused(f"{files.key} is locked with a passphrase; give a key without one") from None
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise Refused(f"{pair} do not belong together; give a certificate and its own key") from None
        raise Refused(f"{pair} hold no certificate and key that can be read; give them as PEM") from None
    except OSError as error:
        raise Refused(f"one of {pair} cannot be read ({error.strerror}); check where they lie") from None
