"""Fields of `spec.auth`: TLS and SASL for the connections to the servers, with credentials from Secrets."""

from typing import ClassVar, Literal

from pydantic import Field

from rota_operator.spec.names import DataKey, ResourceName
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


class Sasl(SpecModel):
    """SASL authentication with user name and password."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] = Field(
        description="The SASL mechanism. GSSAPI and OAUTHBEARER are reserved."
    )
    user_secret: SecretKey = Field(description="The user name.")
    password_secret: SecretKey = Field(description="The password.")


class Auth(SpecModel):
    """Encryption and authentication of the connections to the servers."""

    tls: Tls | None = Field(default=None, description="Encrypts the connections with TLS.")
    sasl: Sasl | None = Field(default=None, description="Authenticates with SASL.")
