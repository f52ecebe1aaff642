"""
Flags of OAUTHBEARER, under the names of Kafka's and librdkafka's properties. `flags` has them among all others.

The client secret is a file or a variable, never an argument.
"""

from rota_sidecar.config.flag_types import File, Flag, Text, is_printable

# The client secret is read from this variable or from a file: a flag would show it to every process of the machine.
CLIENT_SECRET_VARIABLE = "ROTA_SASL_OAUTHBEARER_CLIENT_SECRET"

TOKEN_ENDPOINT_URL = Flag(
    "sasl-oauthbearer-token-endpoint-url",
    Text("URL"),
    "",
    "OAUTHBEARER: token endpoint, asked with client id and secret; or file:///PATH of a file with a token, which is followed as "
    "it changes",
)
CLIENT_ID = Flag(
    "sasl-oauthbearer-client-id",
    Text("NAME", is_printable, "at most 249 printable characters"),
    "",
    "OAUTHBEARER: client id at the token endpoint",
)
CLIENT_ID_FILE = Flag("sasl-oauthbearer-client-id-file", File(), None, "OAUTHBEARER: file with the client id")
CLIENT_SECRET_FILE = Flag(
    "sasl-oauthbearer-client-secret-file",
    File(),
    None,
    f"OAUTHBEARER: file with the client secret; or the variable {CLIENT_SECRET_VARIABLE}",
)
SCOPE = Flag(
    "sasl-oauthbearer-scope",
    Text("SCOPES", is_printable, "at most 249 printable characters"),
    "",
    "OAUTHBEARER: scope that is requested at the token endpoint",
)
TLS_CA = Flag(
    "sasl-oauthbearer-tls-ca",
    File("PEM"),
    None,
    "OAUTHBEARER: certificate authorities trusted for the token endpoint. Without it: those of the operating system",
)
