"""
Bearer tokens for Kafka, the SASL mechanism OAUTHBEARER: the settings of consumers and producers, and the tokens they stand for.

The options of both call `faults`. A producer's librdkafka gets tokens by `callback`; a consumer's own sidecar, another process,
asks a token endpoint itself, and follows a file that `consumer.token_file` writes with the tokens of an object.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rota import errors
from rota_service.oauth_urls import is_file_url, url_problem

if TYPE_CHECKING:
    from rota.security import SecurityOptions
    from rota_service.oauth_sources import TokenSource

OAUTHBEARER = "OAUTHBEARER"
Callback = Callable[[str], tuple[str, float, str]]
"""librdkafka's `oauth_cb`: token, expiry in seconds of the wall clock, principal."""

OBJECT, URL = "sasl_oauth_token_provider", "sasl_oauthbearer_token_endpoint_url"
CLIENT_ID, CLIENT_SECRET = "sasl_oauthbearer_client_id", "sasl_oauthbearer_client_secret"
# Settings of a token endpoint.
OF_ENDPOINT = (CLIENT_ID, CLIENT_SECRET, "sasl_oauthbearer_scope", "sasl_oauthbearer_cafile")
SETTINGS = (OBJECT, URL, *OF_ENDPOINT)
log = logging.getLogger(__name__)


def nowhere(_: str) -> bool:
    """Return False: a producer has its settings nowhere else."""
    return False


def faults(options: "SecurityOptions", is_given: Callable[[str], bool] = nowhere) -> Iterator[str]:
    """Yield the faults of a login's settings; `is_given`: a setting is given in another way."""
    if options.sasl_mechanism != OAUTHBEARER:
        yield from (
            f"{name} is set, but sasl_mechanism is {options.sasl_mechanism!r}: use {OAUTHBEARER!r}, or omit it"
            for name in SETTINGS
            if getattr(options, name) is not None
        )
        return
    for name in ("sasl_username", "sasl_password"):
        if getattr(options, name):
            yield f"{name} is set, but {OAUTHBEARER} has tokens instead: omit it"
    yield from _source_faults(options, is_given)


def _source_faults(options: "SecurityOptions", is_given: Callable[[str], bool]) -> Iterator[str]:
    if options.sasl_oauth_token_provider is not None:
        yield from _object_faults(options)
    elif options.sasl_oauthbearer_token_endpoint_url is not None:
        yield from _url_faults(options, options.sasl_oauthbearer_token_endpoint_url, is_given)
    elif not is_given(URL):
        yield f"sasl_mechanism is {OAUTHBEARER!r} without a source of tokens: set {URL}, or {OBJECT}"


def _object_faults(options: "SecurityOptions") -> Iterator[str]:
    if not callable(getattr(options.sasl_oauth_token_provider, "token", None)):
        yield f"{OBJECT} has no method token: use an object such as kafka-python's AbstractTokenProvider"
    for name in (URL, *OF_ENDPOINT):
        if getattr(options, name) is not None:
            yield f"{OBJECT} and {name} are both set: use one source of tokens"


def _url_faults(options: "SecurityOptions", url: str, is_given: Callable[[str], bool]) -> Iterator[str]:
    problem = url_problem(url, insecure=is_given("insecure"))
    if problem:
        yield f"{URL}: {problem}"
        return
    for name in OF_ENDPOINT:
        if is_file_url(url) and getattr(options, name) is not None:
            yield f"{name} is for a token endpoint, but {URL} is a file: omit it"
    for name in (CLIENT_ID, CLIENT_SECRET):
        if not is_file_url(url) and not getattr(options, name) and not is_given(name):
            yield f"{URL} is set without {name}: set both"


def callback(options: "SecurityOptions") -> Callback:
    """Return librdkafka's `oauth_cb` of a client. Raises AuthenticationFailed if there is no token now: librdkafka does not say why."""
    from rota.clocks import system_clocks
    from rota_service.oauth_provider import Clocks, TokenProvider
    from rota_service.oauth_tokens import NoToken

    ours = system_clocks()
    clocks = Clocks(lambda: ours.wall_ms() / 1000, ours.monotonic_s)
    provider = TokenProvider(token_source(options), clocks, log.warning)
    try:
        provider.token()
    except NoToken as failure:
        raise errors.AuthenticationFailed(f"there is no token for the login to Kafka: {failure}") from failure
    return provider.callback


def token_source(options: "SecurityOptions") -> "TokenSource":
    """Return the source of tokens that the settings name."""
    from pathlib import Path

    from rota_service.oauth_sources import TokenEndpoint, TokenObject, source_for

    if options.sasl_oauth_token_provider is not None:
        return TokenObject(options.sasl_oauth_token_provider)
    ca_file = options.sasl_oauthbearer_cafile
    endpoint = TokenEndpoint(
        options.sasl_oauthbearer_token_endpoint_url or "",
        options.sasl_oauthbearer_client_id or "",
        options.sasl_oauthbearer_client_secret or "",
        scope=options.sasl_oauthbearer_scope or "",
        ca_file=None if ca_file is None else Path(ca_file),
    )
    return source_for(endpoint)
