"""How the servers are spoken to."""

from typing import ClassVar, Literal

from pydantic import Field

from rota_operator.spec.declaring import Part, Rule
from rota_operator.spec.names import DataKey, ResourceName


class SecretKey(Part):
    """A key of a Secret in the group's namespace."""

    name: ResourceName = Field(description="The Secret.")
    key: DataKey = Field(description="The key in it.")


class Tls(Part):
    """Encryption on the way to the servers, and who this is by certificate."""

    ca_cert_secret: SecretKey | None = Field(
        default=None, description="Who signed the servers' certificates; none: the system's."
    )
    cert_secret: SecretKey | None = Field(default=None, description="Our certificate, for mutual TLS.")
    key_secret: SecretKey | None = Field(default=None, description="Its private key.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.certSecret) == has(self.keySecret)",
            "has a certificate or a key alone: give certSecret and keySecret, or neither",
            lambda part: (part.cert_secret is None) == (part.key_secret is None),
        ),
    )


class Sasl(Part):
    """Who this is, by name and password."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] = Field(
        description="How the brokers ask. GSSAPI and OAUTHBEARER are reserved for later."
    )
    user_secret: SecretKey = Field(description="The name.")
    password_secret: SecretKey = Field(description="The password.")


class Auth(Part):
    """How the servers are spoken to."""

    tls: Tls | None = Field(default=None, description="Speak TLS.")
    sasl: Sasl | None = Field(default=None, description="Log in by SASL.")
