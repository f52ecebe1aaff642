"""Flags of GSSAPI, under the names of librdkafka's properties. `flags` has them among all others."""

from rota_sidecar.config.flag_types import File, Flag, Text, is_name_or_empty, is_printable
from rota_sidecar.config.parsing import NAME_CHARACTERS

SERVICE_NAME = Flag(
    "sasl-kerberos-service-name",
    Text("NAME", is_name_or_empty, f"at most 249 {NAME_CHARACTERS}, and not '.' or '..'"),
    "kafka",
    "Service name in the brokers' Kerberos principals",
)
PRINCIPAL = Flag(
    "sasl-kerberos-principal",
    Text("NAME", is_printable, "at most 249 printable characters"),
    "",
    "Kerberos principal. Without it: the keytab's or credential cache's first",
)
KEYTAB = Flag(
    "sasl-kerberos-keytab",
    File(),
    None,
    "Keytab of the principal. Without it: tickets of the credential cache",
)
