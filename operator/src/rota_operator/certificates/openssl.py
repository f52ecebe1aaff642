"""
Issues and reads certificates with the program `openssl`, which every image with Python has. Called by `job`.

Keys are files in a private folder while the program needs them, never arguments.
"""

import os
import re
import secrets
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rota_operator.certificates.rotation import AUTHORITY_DAYS, Certificate

# The program's own configuration would add extensions.
CONFIG = "[req]\ndistinguished_name = subject\n[subject]\n"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
AUTHORITY_EXTENSIONS = (
    "basicConstraints=critical,CA:TRUE,pathlen:0",
    "keyUsage=critical,keyCertSign,cRLSign",
    "subjectKeyIdentifier=hash",
)
SERVER_EXTENSIONS = (
    "basicConstraints=critical,CA:FALSE",
    "keyUsage=critical,digitalSignature",
    "extendedKeyUsage=serverAuth",
    "subjectKeyIdentifier=hash",
    "authorityKeyIdentifier=keyid",
)
DATE = re.compile(r"^not(Before|After)=(.+)$", re.MULTILINE)
DNS_NAME = re.compile(r"DNS:([^,\s]+)")
SERIAL_BYTES = 16
# For hangs.
WITHIN_S = 60


class OpensslFailed(Exception):
    """The program is missing or has failed; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class Openssl:
    """The program, with a private folder for its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = self._write("openssl.cnf", CONFIG.encode())

    def new_authority(self) -> Pair:
        """Create a certificate authority, which signs itself."""
        certificate, key = self._folder / "new.crt", self._folder / "new.key"
        extensions = [part for each in AUTHORITY_EXTENSIONS for part in ("-addext", each)]
        # No two authorities share a name: a client tells them apart.
        subject = f"/O=rota/CN=rota authority {secrets.token_hex(4)}"
        self._run(
            *("req", "-x509", *NEW_KEY, "-subj", subject, *extensions, "-days", str(AUTHORITY_DAYS)),
            *("-set_serial", f"0x{secrets.token_hex(SERIAL_BYTES)}"),
            *("-keyout", key, "-out", certificate),
        )
        return Pair(certificate.read_bytes(), key.read_bytes())

    def issue(self, authority: Pair, name: str, dns_names: Sequence[str], days: int) -> Pair:
        """Issue a server's certificate with a new key."""
        request, key, certificate = (self._folder / f"new.{kind}" for kind in ("csr", "key", "crt"))
        names = ",".join(f"DNS:{each}" for each in dns_names)
        extensions = "\n".join((*SERVER_EXTENSIONS, f"subjectAltName={names}", ""))
        self._run("req", "-new", *NEW_KEY, "-subj", f"/O=rota/CN={name}", "-keyout", key, "-out", request)
        self._run(
            *("x509", "-req", "-in", request, "-days", str(days), "-out", certificate),
            *("-set_serial", f"0x{secrets.token_hex(SERIAL_BYTES)}"),
            *("-extfile", self._write("extensions", extensions.encode())),
            *("-CA", self._write("authority.crt", authority.certificate)),
            *("-CAkey", self._write("authority.key", authority.key)),
        )
        return Pair(certificate.read_bytes(), key.read_bytes())

    def read(self, certificate: bytes) -> Certificate | None:
        """Return what a certificate says; None if it is not one."""
        file = self._write("read.crt", certificate)
        try:
            said = self._run("x509", "-in", file, "-noout", "-dates", "-ext", "subjectAltName")
        except OpensslFailed:
            return None
        dates = {which: ssl.cert_time_to_seconds(date) for which, date in DATE.findall(said)}
        return Certificate(dates["Before"], dates["After"], frozenset(DNS_NAME.findall(said)))

    def is_issued_by(self, certificate: bytes, authority: bytes) -> bool:
        """Return whether an authority has issued a certificate, which may have expired."""
        files = self._write("authority.crt", authority), self._write("read.crt", certificate)
        try:
            self._run("verify", "-no_check_time", "-CAfile", *files)
        except OpensslFailed:
            return False
        return True

    def has_key(self, pair: Pair) -> bool:
        """Return whether the key is that of the certificate."""
        try:
            ours = self._run("pkey", "-in", self._write("read.key", pair.key), "-pubout")
            theirs = self._run("x509", "-in", self._write("read.crt", pair.certificate), "-noout", "-pubkey")
        except OpensslFailed:
            return False
        return ours == theirs

    def _write(self, name: str, content: bytes) -> Path:
        file = self._folder / name
        file.write_bytes(content)
        return file

    def _run(self, *arguments: str | Path) -> str:
        try:
            done = subprocess.run(
                ["openssl", *arguments],
                env={**os.environ, "OPENSSL_CONF": str(self._config)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
            )
        except OSError as error:
            raise OpensslFailed(f"openssl cannot be run ({error}); use an image that has it") from None
        if done.returncode != 0:
            raise OpensslFailed(f"openssl {arguments[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout
