"""
Certificates for tests, as an administrator's authority would issue them: made by OpenSSL, from Debian's package.

`kube pki` (of the cluster) and `keytool` (of the brokers) make some too; they need Go and a JDK, which the tier of
Rota's own servers does without.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import debian
from tests.support.processes import ProcessFailed

# The program's own default file may be missing where it was unpacked.
CONFIG = """\
[req]
distinguished_name = nothing_asked
[nothing_asked]
"""
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
# What a server of the tests is dialled as.
LOOPBACK = ("IP:127.0.0.1", "DNS:localhost")


def prepare() -> debian.Unpacked:
    """The program; fetched on the first call."""
    return debian.unpack("openssl", "openssl")


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    def replace(self, other: "Issued") -> None:
        """Put another pair in the place of this one; each file is whole at every moment."""
        for ours, theirs in ((self.certificate, other.certificate), (self.key, other.key)):
            fresh = ours.with_suffix(".new")
            fresh.write_bytes(theirs.read_bytes())
            fresh.replace(ours)


class Authority:
    """One authority and what it issued, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        (folder / "openssl.cnf").write_text(CONFIG)
        self._itself = self._pair("ca")
        extensions = ["-addext", "basicConstraints=critical,CA:TRUE", "-subj", f"/CN={folder.name}"]
        self._openssl(
            *("req", "-x509", *NEW_KEY, *extensions, "-days", "2"),
            *("-keyout", self._itself.key, "-out", self._itself.certificate),
        )

    @property
    def certificate(self) -> Path:
        """Certificate of the authority, which clients trust."""
        return self._itself.certificate

    def issue(self, name: str, names: Sequence[str] = LOOPBACK, *, days: int = 2, file: str = "") -> Issued:
        """A certificate with `name` as its common name and `names` as alternatives; of 0 days or less: expired."""
        issued = self._pair(file or name)
        request, extensions = (issued.key.with_suffix(f".{kind}") for kind in ("csr", "ext"))
        extensions.write_text(f"subjectAltName={','.join(names)}\n" if names else "")
        self._openssl("req", "-new", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", issued.key, "-out", request)
        self._openssl(
            *("x509", "-req", "-in", request, "-extfile", extensions, "-days", str(days)),
            *("-CA", self._itself.certificate, "-CAkey", self._itself.key, "-CAcreateserial"),
            *("-out", issued.certificate),
        )
        return issued

    def lock(self, issued: Issued, passphrase: str) -> Path:
        """The key of the pair, locked with a passphrase."""
        locked = issued.key.with_suffix(".locked")
        self._openssl("ec", "-in", issued.key, "-out", locked, "-aes256", "-passout", f"pass:{passphrase}")
        return locked

    def _pair(self, name: str) -> Issued:
        return Issued(self._folder / f"{name}.crt", self._folder / f"{name}.key")

    def _openssl(self, *arguments: str | Path) -> None:
        tree = prepare()
        environment = {**os.environ, **tree.environment(), "OPENSSL_CONF": str(self._folder / "openssl.cnf")}
        done = subprocess.run(
            [tree.program("openssl"), *arguments], env=environment, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise ProcessFailed(
                f"openssl {arguments[0]} ended with code {done.returncode}: {done.stderr.strip()}"
            )
