"""URLs of token endpoints, checked before anything is sent there. Used by the flags and settings that name one."""

from urllib.parse import SplitResult, urlsplit

from rota_service.addresses import is_loopback_host

FILE_SCHEME = "file://"
PORTS = {"http": 80, "https": 443}


def is_file_url(url: str) -> bool:
    """Return whether a token endpoint is a file, as Kafka's clients have it: file:///path."""
    return url.startswith(FILE_SCHEME)


def url_problem(url: str, *, insecure: bool) -> str:
    """Return why no token can be got from this URL, in one sentence; empty: it can. A client secret is sent to an http one."""
    example = "expected a URL such as https://idp.example.com/oauth2/token, or file:///path"
    if not (url.isascii() and url.isprintable()) or " " in url:
        return f"the token endpoint has characters that are not valid in a URL; {example}"
    if is_file_url(url):
        is_absolute = url.removeprefix(FILE_SCHEME).startswith("/")
        return "" if is_absolute else f"the token endpoint {url} has no absolute path; {example}"
    if "@" in url.partition("://")[2].partition("/")[0]:
        # Not shown: it may hold a password.
        return f"the token endpoint must not have a user in its URL; {example}"
    try:
        parts = urlsplit(url)
        port = port_of(parts)
    except (ValueError, KeyError):
        return f"the token endpoint {url} is not a URL; {example}"
    if not parts.hostname or not port or parts.fragment:
        return f"the token endpoint {url} is not a URL; {example}"
    if parts.scheme == "http" and not insecure and not is_loopback_host(parts.hostname):
        return f"the client secret would be sent to {parts.netloc} in clear text; use https"
    return ""


def port_of(parts: SplitResult) -> int:
    """Return the port of an http or https URL. Raises ValueError, KeyError."""
    return parts.port or PORTS[parts.scheme]
