"""Fields of `spec.auth`: TLS and SASL for the connections to the servers, with credentials from Secrets."""

from typing import ClassVar, Literal

from pydantic import Field

from rota_operator.spec.names import DataKey, Principal, ResourceName, ServiceName
from rota_operator.spec.scalars import Audience, OptionalScope, OptionalTokenEndpoint, TokenSeconds
from rota_operator.spec.schema import SpecModel, ValidationRule


class SecretKey(SpecModel):
    """Reference to a key of a Secret in the ConsumerGroup's namespace."""

    name: ResourceName = Field(description="The name of the Secret.")
    key: DataKey = Field(description="The key within the Secret.")


class Tls(SpecModel):
    """TLS to the servers, mutual if a client certificate is given."""

    ca_cert_secret: SecretKey | None = Field(
        default=None,
        description="The CA certificates (PEM) that verify the servers. Defaults to the system's trust store.",
    )
    cert_secret: SecretKey | None = Field(
        default=None, description="The client certificate (PEM), for mutual TLS."
    )
    key_secret: SecretKey | None = Field(
        default=None, description="The private key (PEM) of the client certificate."
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "has(self.certSecret) == has(self.keySecret)",
            "must set both certSecret and keySecret, or neither",
            lambda part: (part.cert_secret is None) == (part.key_secret is None),
        ),
    )


class ServiceAccountToken(SpecModel):
    """A token of the pod's service account, which the kubelet projects and renews."""

    audience: Audience = Field(description="The audience that the brokers expect.")
    expiration_seconds: TokenSeconds = Field(
        default=3600,
        description="The requested lifetime in seconds; the kubelet renews the token at 80 percent of it.",
    )


class OAuthBearer(SpecModel):
    """The source of bearer tokens: a token endpoint, or the pod's service account."""

    service_account_token: ServiceAccountToken | None = Field(
        default=None,
        description="A token of the pod's service account. Set either serviceAccountToken or tokenEndpointUrl.",
    )
    token_endpoint_url: OptionalTokenEndpoint = Field(
        default="",
        description="The token endpoint (sasl.oauthbearer.token.endpoint.url), asked with OAuth 2.0 client credentials. Set "
        "either serviceAccountToken or tokenEndpointUrl.",
    )
    client_id_secret: SecretKey | None = Field(
        default=None, description="The client id at the token endpoint."
    )
    client_secret_secret: SecretKey | None = Field(
        default=None, description="The client secret at the token endpoint."
    )
    scope: OptionalScope = Field(
        default="", description="The scope that is requested at the token endpoint (sasl.oauthbearer.scope)."
    )
    ca_cert_secret: SecretKey | None = Field(
        default=None,
        description="The CA certificates (PEM) that verify the token endpoint. Defaults to the system's trust store.",
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "has(self.serviceAccountToken) != (has(self.tokenEndpointUrl) && self.tokenEndpointUrl != '')",
            "must set exactly one of serviceAccountToken and tokenEndpointUrl",
            lambda part: (part.service_account_token is not None) != bool(part.token_endpoint_url),
        ),
        ValidationRule(
            "has(self.serviceAccountToken) || (has(self.clientIdSecret) && has(self.clientSecretSecret))",
            "must set clientIdSecret and clientSecretSecret with tokenEndpointUrl",
            lambda part: (
                part.service_account_token is not None
                or (part.client_id_secret is not None and part.client_secret_secret is not None)
            ),
        ),
        ValidationRule(
            "!has(self.serviceAccountToken) || !(has(self.clientIdSecret) || has(self.clientSecretSecret) || "
            "has(self.caCertSecret) || (has(self.scope) && self.scope != ''))",
            "must set clientIdSecret, clientSecretSecret, scope and caCertSecret with tokenEndpointUrl only",
            lambda part: (
                part.service_account_token is None
                or not (
                    part.client_id_secret is not None
                    or part.client_secret_secret is not None
                    or part.ca_cert_secret is not None
                    or bool(part.scope)
                )
            ),
        ),
    )


class Kerberos(SpecModel):
    """Kerberos authentication, for mechanism GSSAPI."""

    service_name: ServiceName = Field(
        default="kafka", description="The service name in the Kerberos principals of the brokers."
    )
    principal: Principal | None = Field(
        default=None, description="The principal of the group. Defaults to the first one of the keytab."
    )
    keytab_secret: SecretKey = Field(description="The keytab of the principal.")
    krb5_conf_secret: SecretKey = Field(
        description="The file krb5.conf, with the realm and the addresses of its KDCs."
    )


class Sasl(SpecModel):
    """SASL authentication with user name and password, with bearer tokens, or with Kerberos."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] = Field(
        description="The SASL mechanism."
    )
    user_secret: SecretKey | None = Field(
        default=None, description="The user name. Required with PLAIN and SCRAM."
    )
    password_secret: SecretKey | None = Field(
        default=None, description="The password. Required with PLAIN and SCRAM."
    )
    oauthbearer: OAuthBearer | None = Field(
        default=None, description="The source of bearer tokens. Required with OAUTHBEARER."
    )
    kerberos: Kerberos | None = Field(
        default=None, description="The Kerberos identity. Required with GSSAPI."
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.mechanism in ['GSSAPI', 'OAUTHBEARER'] ? !(has(self.userSecret) || has(self.passwordSecret)) : "
            "has(self.userSecret) && has(self.passwordSecret)",
            "must set userSecret and passwordSecret with PLAIN and SCRAM, and neither with GSSAPI and OAUTHBEARER",
            lambda part: (
                part.user_secret is None and part.password_secret is None
                if part.mechanism in ("GSSAPI", "OAUTHBEARER")
                else part.user_secret is not None and part.password_secret is not None
            ),
        ),
        ValidationRule(
            "has(self.oauthbearer) == (self.mechanism == 'OAUTHBEARER')",
            "must set oauthbearer with OAUTHBEARER, and only then",
            lambda part: (part.oauthbearer is not None) == (part.mechanism == "OAUTHBEARER"),
        ),
        ValidationRule(
            "has(self.kerberos) == (self.mechanism == 'GSSAPI')",
            "must set kerberos with GSSAPI, and only then",
            lambda part: (part.kerberos is not None) == (part.mechanism == "GSSAPI"),
        ),
    )


class Auth(SpecModel):
    """Encryption and authentication of the connections to the servers."""

    tls: Tls | None = Field(default=None, description="Encrypts the connections with TLS.")
    sasl: Sasl | None = Field(default=None, description="Authenticates with SASL.")
