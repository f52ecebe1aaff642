"""
Reads the tokens file, and reloads it when it changes. A file with errors leaves the previous contents in effect.
"""

import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rota_coordinator.core.quotas import Quota
from rota_coordinator.security.authenticator import Digest
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.security.policy import Grants
from rota_coordinator.security.principals import Principals, parse
from rota_service.file_versions import Version, version_of

FILE_BYTES_MAX = 1024 * 1024


class TokensFile:
    """The principals of the file as last read. Invariant: they are those of the last valid contents."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._version: Version | None = None
        self._last_error = ""
        self._principals = self._read()

    def reload_if_changed(self) -> None:
        """Reload the file if it has changed."""
        try:
            if self._current_version() == self._version:
                return
            self._principals = self._read()
            self._last_error = ""
            self._report(f"{self._path} was reloaded")
        except SecurityError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                self._report(f"{error}; the previous contents stay in effect")

    def with_token(self, digest: Digest) -> str | None:
        return self._principals.with_token(digest)

    def with_certificate(self, names: Sequence[str]) -> str | None:
        return self._principals.with_certificate(names)

    def grants_of(self, name: str) -> Grants | None:
        return self._principals.grants_of(name)

    def grants_of_pods(self, subject: str) -> Grants | None:
        return self._principals.grants_of_pods(subject)

    def grants_in(self, namespace: str) -> Iterable[Grants]:
        return self._principals.grants_in(namespace)

    def quota_of(self, name: str, default: Quota) -> Quota:
        """Return the quota of the principal; `default` for fields that its line does not set."""
        return self._principals.quota_of(name, default)

    def _current_version(self) -> Version:
        try:
            return version_of(self._path)
        except OSError as error:
            raise SecurityError(
                f"{self._path} cannot be read ({error.strerror}); give the path of an existing file"
            ) from None

    def _read(self) -> Principals:
        # Before reading, so that a change in between is detected at the next check. Kept although reading may fail, so
        # that an error is reported once and not at every check.
        self._version = self._current_version()
        if self._version.mode & stat.S_IROTH:
            self._report(f"{self._path} is readable by every user of this machine; run chmod o-r")
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise SecurityError(
                f"{self._path} cannot be read ({error.strerror}); check --tokens-file"
            ) from None
        if len(data) > FILE_BYTES_MAX:
            raise SecurityError(f"{self._path} has {len(data)} bytes; at most {FILE_BYTES_MAX} are allowed")
        try:
            return parse(data.decode(), str(self._path))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise SecurityError(f"{self._path}, line {line}: not valid UTF-8") from None
