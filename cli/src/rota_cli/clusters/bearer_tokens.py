"""Bearer tokens for Kafka (OAUTHBEARER): the flags of a login, checked, and the provider that asks for its tokens."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rota_cli.clusters.clocks import Clocks
from rota_cli.errors import Failure, NotReachable
from rota_service.oauth_urls import is_file_url, url_problem

if TYPE_CHECKING:
    from rota_service.oauth_provider import TokenProvider

OAUTHBEARER = "OAUTHBEARER"
URL_FLAG = "--sasl-oauthbearer-token-endpoint-url"
SECRET_FLAG = "--sasl-oauthbearer-client-secret-file"
SECRET_VARIABLE = "ROTA_SASL_OAUTHBEARER_CLIENT_SECRET"


@dataclass(frozen=True, slots=True)
class OAuthFlags:
    """Flags of a token endpoint, or of a file with a token; files are read on use."""

    url: str = ""
    client_id: str = ""
    client_secret_file: Path | None = None
    scope: str = ""
    ca_file: Path | None = None
    # Of the variable; the file takes precedence.
    client_secret: str = field(default="", repr=False)

    @property
    def is_given(self) -> bool:
        """True if a flag is given; the variable alone is not a login."""
        return any((self.url, self.client_id, self.client_secret_file, self.scope, self.ca_file))

    def problem(self, *, insecure: bool) -> str:
        """Return why no token can be got with these flags; empty if it can."""
        if not self.url:
            return f"{OAUTHBEARER} needs {URL_FLAG}: a token endpoint, or file:///PATH of a token"
        wrong = url_problem(self.url, insecure=insecure)
        if wrong:
            return f"{URL_FLAG}: {wrong}"
        if is_file_url(self.url):
            given = any((self.client_id, self.client_secret_file, self.scope, self.ca_file))
            return (
                f"{URL_FLAG} is a file: client id, secret and scope are for a token endpoint" if given else ""
            )
        if not self.client_id:
            return "the client id is missing: pass --sasl-oauthbearer-client-id"
        if not (self.client_secret_file or self.client_secret):
            return f"the client secret is missing: pass {SECRET_FLAG} or set {SECRET_VARIABLE}"
        return ""


def secret_of_environment() -> str:
    """Return the client secret of the variable; empty: it is not set."""
    return os.environ.get(SECRET_VARIABLE, "")


def provider_of(oauth: OAuthFlags, clocks: Clocks) -> "TokenProvider":
    """Return the provider of tokens, which has one. Raises NotReachable and Failure: librdkafka does not say why there is none."""
    from rota_service.oauth_provider import Clocks as ProviderClocks
    from rota_service.oauth_provider import TokenProvider
    from rota_service.oauth_sources import TokenEndpoint, source_for
    from rota_service.oauth_tokens import NoToken

    endpoint = TokenEndpoint(
        oauth.url,
        oauth.client_id,
        oauth.client_secret,
        client_secret_file=oauth.client_secret_file,
        scope=oauth.scope,
        ca_file=oauth.ca_file,
    )
    times = ProviderClocks(lambda: clocks.now_ms() / 1000, clocks.monotonic_s)
    # A command ends before a token does: a failed renewal is said by the request that fails.
    provider = TokenProvider(source_for(endpoint), times, lambda _: None)
    try:
        provider.token()
    except NoToken as failure:
        kind = NotReachable if failure.may_heal else Failure
        raise kind(f"there is no token for the login to Kafka: {failure}") from None
    return provider
