"""
The certificate authority of Rota's servers, from the file of --tls-ca. `leading` runs it beside its work.

The file may be replaced at any time: a new authority is announced in it before it issues, so ConfigMaps, sidecars and the operator's
own channels have to get each version. The file is looked at periodically, because a Secret's volume replaces symbolic links.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rota_service.file_versions import Version, version_of
from rota_service.server_certificates import CertificateError, authority_error, read_pem

PERIOD_S = 5.0


class AuthorityFile:
    """The authority as the file has it. Invariant: `pem` is the last version that was a PEM file; None: there is no file."""

    def __init__(self, file: Path | None, warn: Callable[[str], None]) -> None:
        """Raises CertificateError if the file cannot be read."""
        self._file = file
        self._warn = warn
        self._last_error = ""
        self._version = self._present_version()
        self.pem = None if file is None else read_authority(file)

    @property
    def text(self) -> str:
        """Return the authority; empty: that of the system."""
        return (self.pem or b"").decode()

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of the authority, until cancelled."""
        while True:
            if self.reload():
                on_change()
            await asyncio.sleep(PERIOD_S)

    def reload(self) -> bool:
        """Read the file if it was replaced; returns True if the authority is another one. An invalid version is reported once."""
        version = self._present_version()
        if self._file is None or version == self._version:
            return False
        try:
            pem = read_authority(self._file)
        except CertificateError as error:
            self._report(str(error))
            return False
        self._last_error = ""
        self._version = version
        is_new = pem != self.pem
        self.pem = pem
        return is_new

    def _present_version(self) -> Version | None:
        try:
            return None if self._file is None else version_of(self._file)
        except OSError:
            return None

    def _report(self, error: str) -> None:
        if error != self._last_error:
            self._last_error = error
            self._warn(f"{error}; the previous certificate authority stays in use")


def read_authority(file: Path) -> bytes:
    """Return the certificates in a PEM file. Raises CertificateError."""
    pem = read_pem(file)
    if error := authority_error(file, pem):
        raise CertificateError(error)
    return pem
