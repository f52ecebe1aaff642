"""
The client side of SASL: PLAIN, SCRAM (RFC 5802) as Kafka implements it, and OAUTHBEARER (RFC 7628). Takes and returns bytes;
`login.py` sends them.

As in Kafka's own clients, users and passwords are encoded as UTF-8 without SASLprep.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Generator
from secrets import token_urlsafe

from rota_sidecar.engines.kafka.settings import Credentials

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
OAUTHBEARER = "OAUTHBEARER"
PASSWORD_MECHANISMS = ("PLAIN", *HASHES)
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)
# RFC 7677 requires at least 4,096, and Kafka stores at most 16,384. The upper limit bounds the time of the hash.
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 131_072
NO_CHANNEL_BINDING = "n,,"

Exchange = Generator[bytes, bytes, None]
"""Yields each message to send and receives the server's answer. Returns after the server's proof, or raises Unproved."""


class Unproved(Exception):
    """The server did not prove that it knows the password, or violated SCRAM; the message says where."""


def exchange(mechanism: str, credentials: Credentials, nonce: str = "") -> Exchange:
    """
    Start the exchange of a mechanism in MECHANISMS; for OAUTHBEARER the token is the password.

    Without `nonce`, which is for tests, a random one is drawn.
    """
    if mechanism in HASHES:
        return _scram(HASHES[mechanism], credentials, nonce or token_urlsafe(24))
    return _bearer(credentials) if mechanism == OAUTHBEARER else _plain(credentials)


def _bearer(credentials: Credentials) -> Exchange:
    problem = yield f"n,,\1auth=Bearer {credentials.password}\1\1".encode()
    if problem:
        # The server has said why in JSON, and waits for this to end the exchange with an error.
        yield b"\1"


def _plain(credentials: Credentials) -> Exchange:
    yield f"\0{credentials.user}\0{credentials.password}".encode()


def _scram(algorithm: str, credentials: Credentials, nonce: str) -> Exchange:
    name = credentials.user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = (yield (NO_CHANNEL_BINDING + first).encode()).decode("utf-8", "replace")
    parts = _parts(challenge)
    salt, iterations = _bytes(parts.get("s", "")), _iterations(parts.get("i", ""))
    both = parts.get("r", "")
    if not both.startswith(nonce) or both == nonce:
        raise Unproved("its nonce does not continue the client's nonce")

    salted = hashlib.pbkdf2_hmac(algorithm, credentials.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    last = f"c={b64encode(NO_CHANNEL_BINDING.encode()).decode()},r={both}"
    signed = f"{first},{challenge},{last}".encode()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    verdict = _parts((yield f"{last},p={b64encode(proof).decode()}".encode()).decode("utf-8", "replace"))

    if "e" in verdict:
        raise Unproved(f"its error is {verdict['e']!r}")
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    if not hmac.compare_digest(_bytes(verdict.get("v", "")), hmac.digest(server_key, signed, algorithm)):
        raise Unproved("its signature does not match the password")


def _parts(message: str) -> dict[str, str]:
    """Parse `r=…,s=…,i=…` into a dict by attribute name."""
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)


def _bytes(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except NoBase64:
        data = b""
    if not data:
        raise Unproved("its response is not SCRAM")
    return data


def _iterations(text: str) -> int:
    # The length check comes first: int() raises for very long texts.
    if not text.isdecimal() or len(text) > 9 or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise Unproved(
            f"it requires {text[:20] or 'no'} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
        )
    return int(text)
