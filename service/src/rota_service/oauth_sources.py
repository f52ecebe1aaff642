"""
Sources of OAuth bearer tokens: a file, a token endpoint (OAuth 2.0 client credentials), or an object of an application.

`oauth_provider` asks one when a token is due. Each call reads its files again, so that what replaces them needs no restart.
"""

import asyncio
import http.client
import io
import json
import math
import os
import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlencode, urlsplit

from typing_extensions import override

from rota_service.oauth_tokens import NoToken, Token, parse_token
from rota_service.oauth_urls import FILE_SCHEME, is_file_url, port_of

# Limits of a token endpoint's answer, in bytes and seconds.
ANSWER_BYTES_MAX = 1 << 20
ENDPOINT_S = 10.0
# RFC 6749: 400 with invalid_client, or 401.
REJECTED = (400, 401, 403)
# Answers of a server that is overloaded, or not ready.
LATER = (408, 425, 429)
END_OF_HEAD = b"\r\n\r\n"


class TokenSource(Protocol):
    """Obtains tokens. `str` names it in messages."""

    @property
    def is_local(self) -> bool:
        """Return True if asking costs nothing: then each login asks."""
        ...

    def obtain(self, wall_s: float) -> Token:
        """Return a token; blocks for a bounded time. Raises NoToken."""
        ...


@dataclass(frozen=True, slots=True)
class TokenFile(TokenSource):
    """A file that another process writes, such as a projected service account token. A JWT, as its expiry must be known."""

    path: Path
    is_local: bool = field(default=True, init=False)

    @override
    def obtain(self, wall_s: float) -> Token:
        try:
            text = self.path.read_bytes().decode("ascii", "replace").strip()
        except OSError as error:
            raise NoToken(
                f"the token file {self.path} cannot be read ({error.strerror}); check its path and permissions",
                may_heal=True,
            ) from None
        if not text:
            raise NoToken(f"{self} is empty; write the token to it", may_heal=True)
        try:
            return parse_token(text, str(self), wall_s)
        except NoToken as failure:
            # Part of a token, when the file is being written.
            raise NoToken(*failure.args, may_heal=True) from None

    @override
    def __str__(self) -> str:
        return f"the token file {self.path}"


@dataclass(frozen=True, slots=True)
class TokenEndpoint(TokenSource):
    """A token endpoint. Client id and secret are values, or else files."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_id_file: Path | None = None
    client_secret_file: Path | None = None
    # Empty: none is asked for.
    scope: str = ""
    # None: the authorities of the operating system.
    ca_file: Path | None = None
    is_local: bool = field(default=False, init=False)

    @override
    def obtain(self, wall_s: float) -> Token:
        user = _secret(self.client_id, self.client_id_file, "client id")
        password = _secret(self.client_secret, self.client_secret_file, "client secret")
        status, body = self._ask(self._request(user, password))
        if status != http.HTTPStatus.OK:
            raise self._failure(status, _error_code(body))
        try:
            answer = json.loads(body)
            text, expires_in = answer["access_token"], answer.get("expires_in")
            lifetime_s = None if expires_in is None else float(expires_in)
            if not isinstance(text, str) or not math.isfinite(lifetime_s or 0):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise NoToken(
                f"{self} does not answer with an access_token; check the URL", may_heal=False
            ) from None
        return parse_token(text, str(self), wall_s, lifetime_s)

    @override
    def __str__(self) -> str:
        return f"the token endpoint {self.url}"

    def _request(self, user: str, password: str) -> bytes:
        # Not encoded as a form, as in Kafka's clients unless sasl.oauthbearer.header.urlencode is set.
        login = b64encode(f"{user}:{password}".encode()).decode()
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        body = urlencode(form)
        parts = urlsplit(self.url)
        head = (
            f"POST {parts.path or '/'}{f'?{parts.query}' if parts.query else ''} HTTP/1.1",
            f"Host: {parts.netloc}",
            f"Authorization: Basic {login}",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(body)}",
            "Accept: application/json",
            "Connection: close",
        )
        return "\r\n".join((*head, "", body)).encode()

    def _ask(self, request: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer, within the time limit of all steps together. Raises NoToken."""

        async def within() -> bytes:
            async with asyncio.timeout(ENDPOINT_S):
                return await self._exchange(request)

        try:
            # The thread has no loop: this limits all steps together, also against a server that sends byte by byte.
            return _parsed(asyncio.run(within()))
        except TimeoutError:
            problem = f"did not answer within {ENDPOINT_S:g} s; check that it is running"
        except ssl.SSLCertVerificationError as error:
            raise NoToken(
                f"the certificate of {self} is not trusted ({error.verify_message.rstrip('.')}); "
                "check the CA file, and that the host is one of the certificate's names",
                may_heal=False,
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else type(error).__name__
            problem = f"cannot be reached ({reason}); check the URL and the network"
        except (EOFError, asyncio.LimitOverrunError, http.client.HTTPException, ValueError):
            problem = "does not answer as an HTTP server; check the URL"
        raise NoToken(f"{self} {problem}", may_heal=True)

    async def _exchange(self, request: bytes) -> bytes:
        parts = urlsplit(self.url)
        tls = self._context() if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            parts.hostname, port_of(parts), ssl=tls, limit=ANSWER_BYTES_MAX
        )
        try:
            writer.write(request)
            head = await reader.readuntil(END_OF_HEAD)
            length = http.client.parse_headers(io.BytesIO(head.partition(b"\r\n")[2])).get("Content-Length")
            if length is not None and length.isdecimal() and int(length) <= ANSWER_BYTES_MAX:
                return head + await reader.readexactly(int(length))
            body = b""
            while chunk := await reader.read(ANSWER_BYTES_MAX):
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise ValueError
            return head + body
        finally:
            # Aborted, not closed: TLS would wait for the peer's close_notify.
            writer.transport.abort()

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError:
            raise NoToken(
                f"the CA file {self.ca_file} of {self} has no readable certificate; give a PEM file",
                may_heal=False,
            ) from None

    def _failure(self, status: int, code: str) -> NoToken:
        said = f"{status}{f', {code}' if code else ''}"
        if status in REJECTED:
            return NoToken(
                f"{self} rejects the client ({said}); check the client id, the client secret and the scope",
                may_heal=False,
            )
        if status in LATER or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            return NoToken(f"{self} has no token now ({said}); see its log if that repeats", may_heal=True)
        return NoToken(f"{self} is not one ({said}); check the URL", may_heal=False)


class AnyTokenProvider(Protocol):
    """An object with the method of kafka-python's token providers."""

    def token(self) -> str:
        """Return a token that can be used now."""
        ...


@dataclass(frozen=True, slots=True)
class TokenObject(TokenSource):
    """An object of the application, as kafka-python's `AbstractTokenProvider`. It renews its tokens itself."""

    provider: AnyTokenProvider
    is_local: bool = field(default=True, init=False)

    @override
    def obtain(self, wall_s: float) -> Token:
        try:
            text = self.provider.token()
        except Exception as error:
            # The application's code; its message may hold what it likes, also a secret.
            raise NoToken(f"{self} raised {type(error).__name__}; see its own log", may_heal=True) from error
        if not isinstance(text, str):
            raise NoToken(f"{self} returned {type(text).__name__}; expected a token as str", may_heal=False)
        return parse_token(text, str(self), wall_s)

    @override
    def __str__(self) -> str:
        return f"the token provider {type(self.provider).__name__}"


def source_for(endpoint: TokenEndpoint) -> TokenSource:
    """Return the file of a file URL, else the endpoint itself."""
    if is_file_url(endpoint.url):
        return TokenFile(Path(unquote(endpoint.url.removeprefix(FILE_SCHEME))))
    return endpoint


def _secret(value: str, file: Path | None, what: str) -> str:
    if file is not None:
        try:
            # Editors and `echo` append a newline.
            value = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            raise NoToken(
                f"the file {file} of the {what} for the token endpoint cannot be read; check its path and permissions",
                may_heal=True,
            ) from None
    if not value:
        problem = "is not set" if file is None else f"is missing: {file} is empty"
        raise NoToken(
            f"the {what} for the token endpoint {problem}; set it in a file or in the environment",
            may_heal=file is not None,
        )
    return value


class _Bytes:
    """A socket for `http.client` with an answer that was read already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _parsed(data: bytes) -> tuple[int, bytes]:
    """Parse an answer: the length of its body, or its chunks."""
    response = http.client.HTTPResponse(_Bytes(data))  # type: ignore[arg-type]  # it only makes a file of it
    response.begin()
    return response.status, response.read()


def _error_code(body: bytes) -> str:
    """Return the error code of RFC 6749; nothing else of a body, which may repeat what was sent."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    is_code = isinstance(code, str) and len(code) <= 40 and code.replace("_", "").isalnum() and code.isascii()
    return code if is_code else ""
