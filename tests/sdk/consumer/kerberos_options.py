"""Settings of a consumer's login by Kerberos, for `test_options.py`: those that are refused, and those that are accepted."""

from pathlib import Path
from typing import Any

RECORDS_IN_KAFKA: dict[str, Any] = {"bootstrap_servers": "kafka:9092"}
KERBEROS = {"sasl_mechanism": "GSSAPI"}
LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "hush"}
BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "sasl_kerberos_service_name": [
        (
            {**RECORDS_IN_KAFKA, "sasl_kerberos_service_name": "kafka"},
            "sasl_kerberos_service_name is set without sasl_mechanism='GSSAPI': set both",
        ),
        ({**RECORDS_IN_KAFKA, **KERBEROS, "sasl_kerberos_service_name": ""}, "use a text without control"),
    ],
    "sasl_kerberos_principal": [
        ({**RECORDS_IN_KAFKA, **LOGIN, "sasl_kerberos_principal": "me"}, "without sasl_mechanism='GSSAPI'"),
        ({**RECORDS_IN_KAFKA, **KERBEROS, "sasl_kerberos_principal": "a\nb"}, "use a text without control"),
        (
            {**RECORDS_IN_KAFKA, **KERBEROS, "sasl_username": "me"},
            "sasl_username is set, but GSSAPI has neither user name nor password: use sasl_kerberos_principal",
        ),
    ],
    "sasl_kerberos_keytab": [
        ({**RECORDS_IN_KAFKA, **KERBEROS, "sasl_kerberos_keytab": Path("k")}, "use a text without control"),
    ],
}
GOOD: list[dict[str, Any]] = [
    {**RECORDS_IN_KAFKA, **KERBEROS},
    {
        **RECORDS_IN_KAFKA,
        **KERBEROS,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_principal": "rota/host@REALM",
        "sasl_kerberos_keytab": "/etc/rota.keytab",
    },
]
