"""Parse and validate the URL that records are posted to. Used by the flags, before anything starts, and by the HTTP client."""

from typing import NamedTuple
from urllib.parse import urlsplit

from rota_service.addresses import is_loopback

PORTS = {"http": 80, "https": 443}


class Url(NamedTuple):
    """A URL that records are posted to."""

    host: str
    port: int
    is_tls: bool
    # Host and port, and path and query, as the request states them.
    authority: str
    target: str


def url_of(text: str) -> Url:
    """Parse a URL. Raises ValueError with one sentence."""
    example = "expected a URL such as http://127.0.0.1:8080/records"
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ValueError(f"the URL has characters that are not valid in a URL; {example}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"the URL {text} has an invalid port; {example}") from None
    if parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc or parts.fragment:
        raise ValueError(f"the URL {text} is not valid; {example}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Url(parts.hostname, port or PORTS[parts.scheme], parts.scheme == "https", parts.netloc, target)


def url_problem(text: str, *, insecure: bool) -> str:
    """Return why records must not be posted there, in one sentence; empty: they may."""
    try:
        url = url_of(text)
    except ValueError as error:
        return str(error)
    host = f"[{url.host}]" if ":" in url.host else url.host
    if not (is_loopback(f"{host}:{url.port}") or insecure):
        return (
            f"{url.authority} is another machine, and records would be sent to it in clear text; give the application "
            "beside this sidecar (127.0.0.1), or --insecure to send them all the same"
        )
    return ""
