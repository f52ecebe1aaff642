"""
An issuer of signed tokens for tests, as an identity provider or Kubernetes' API server is one: it serves its public key (JWKS).

A broker verifies signature, issuer and audience by `broker_settings`. Keys and signatures are OpenSSL's, from Debian's package.
"""

import json
import os
import subprocess
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from typing_extensions import override

from tests.support import certificates
from tests.support.processes import ProcessFailed

AUDIENCE, KEY_ID = "kafka", "key-1"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
EXPONENT = (65537).to_bytes(3, "big")


class Issuer:
    """One issuer, with a key in a folder. `url` is where its key is served."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._key = folder / "key.pem"
        self.url = ""
        _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self._key)

    def token(self, subject: str, lifetime_s: float = 3600, **claims: object) -> str:
        """A signed token."""
        now_s = int(time.time())
        every = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": now_s,
            "exp": now_s + int(lifetime_s),
            **claims,
        }
        signed = f"{_json({'alg': 'RS256', 'kid': KEY_ID})}.{_json(every)}"
        return f"{signed}.{_base64(_openssl('dgst', '-sha256', '-sign', self._key, stdin=signed.encode()))}"

    def keys(self) -> bytes:
        """The public key, as a JSON Web Key Set."""
        modulus = _openssl("rsa", "-in", self._key, "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": KEY_ID,
            "n": _base64(bytes.fromhex(modulus)),
            "e": _base64(EXPONENT),
        }
        return json.dumps({"keys": [key]}).encode()

    def broker_settings(self, listener: str = "clients") -> dict[str, str]:
        """The properties of a broker that believes this issuer."""
        return {
            f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": self.url,
            "sasl.oauthbearer.expected.issuer": self.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    @property
    def java_option(self) -> str:
        """The option of a broker's Java, which asks allowed addresses only."""
        return f"-D{ALLOWED_URLS}={self.url}"


@contextmanager
def issuing(folder: Path) -> Iterator[Issuer]:
    """Run an issuer, which serves its key."""
    issuer = Issuer(folder)
    keys = issuer.keys()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(keys)))
            self.end_headers()
            self.wfile.write(keys)

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}/openid/v1/jwks"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _json(value: Mapping[str, object]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _openssl(*arguments: str | Path, stdin: bytes = b"") -> bytes:
    tree = certificates.prepare()
    done = subprocess.run(
        [tree.program("openssl"), *arguments],
        env={**os.environ, **tree.environment()},
        input=stdin,
        capture_output=True,
    )
    if done.returncode != 0:
        raise ProcessFailed(
            f"openssl {arguments[0]} ended with code {done.returncode}: {done.stderr.decode()}"
        )
    return done.stdout
