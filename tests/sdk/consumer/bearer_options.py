"""Settings of a consumer's login by bearer tokens, for `test_options.py`: those that are refused, and those that are accepted."""

from types import SimpleNamespace
from typing import Any

RECORDS_IN_KAFKA: dict[str, Any] = {"bootstrap_servers": "kafka:9092"}
LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "hush"}
IDP = "https://idp.example/token"
OAUTH: dict[str, Any] = {**RECORDS_IN_KAFKA, "sasl_mechanism": "OAUTHBEARER"}
CLIENT: dict[str, Any] = {
    **OAUTH,
    "sasl_oauthbearer_token_endpoint_url": IDP,
    "sasl_oauthbearer_client_id": "me",
    "sasl_oauthbearer_client_secret": "hush",
}
BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "sasl_oauth_token_provider": [
        (
            {**OAUTH, "sasl_oauth_token_provider": "hush"},
            "sasl_oauth_token_provider has no method token: use an object",
        ),
        (
            {**CLIENT, "sasl_oauth_token_provider": SimpleNamespace(token=lambda: "hush")},
            "sasl_oauth_token_provider and sasl_oauthbearer_token_endpoint_url are both set: use one",
        ),
        (
            {**RECORDS_IN_KAFKA, "sasl_oauth_token_provider": SimpleNamespace(token=lambda: "hush")},
            "is set without sasl_mechanism",
        ),
        (
            OAUTH,
            "sasl_mechanism is 'OAUTHBEARER' without a source of tokens: set sasl_oauthbearer_token_endpoint_url, or",
        ),
    ],
    "sasl_oauthbearer_token_endpoint_url": [
        (
            {**CLIENT, "sasl_oauthbearer_token_endpoint_url": "idp.example"},
            "the token endpoint idp.example is not a URL",
        ),
        ({**CLIENT, "sasl_oauthbearer_token_endpoint_url": "http://idp.example"}, "in clear text; use https"),
        (
            {**CLIENT, "sasl_oauthbearer_token_endpoint_url": "https://me:hush@idp.example"},
            "must not have a user in its URL",
        ),
        (
            {**LOGIN, **RECORDS_IN_KAFKA, "sasl_oauthbearer_token_endpoint_url": IDP},
            "but sasl_mechanism is 'PLAIN'",
        ),
    ],
    "sasl_oauthbearer_client_id": [
        (
            {**CLIENT, "sasl_oauthbearer_client_id": None},
            "is set without sasl_oauthbearer_client_id: set both",
        ),
        (
            {**CLIENT, "sasl_oauthbearer_token_endpoint_url": "file:///t"},
            "client_id is for a token endpoint, but",
        ),
    ],
    "sasl_oauthbearer_client_secret": [
        (
            {**CLIENT, "sasl_oauthbearer_client_secret": ""},
            "is set without sasl_oauthbearer_client_secret: set both",
        ),
    ],
    "sasl_oauthbearer_scope": [
        (
            {**RECORDS_IN_KAFKA, "sasl_oauthbearer_scope": "a"},
            "sasl_oauthbearer_scope is set without sasl_mechanism",
        ),
    ],
    "sasl_oauthbearer_cafile": [
        (
            {**RECORDS_IN_KAFKA, "sasl_oauthbearer_cafile": "ca"},
            "sasl_oauthbearer_cafile is set without sasl_mechanism",
        ),
    ],
}
GOOD: list[dict[str, Any]] = [
    {**CLIENT, "sasl_oauthbearer_scope": "kafka", "sasl_oauthbearer_cafile": "ca.crt"},
    {**OAUTH, "sasl_oauthbearer_token_endpoint_url": "file:///run/token"},
    {**OAUTH, "sidecar_flags": ["--sasl-oauthbearer-token-endpoint-url=file:///run/token"]},
]
