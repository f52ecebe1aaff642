"""A consumer's login by Kerberos: the settings become flags of its sidecar."""

from pathlib import Path

from rota_sidecar.config.sidecar_config import KerberosConfig
from tests.sdk.consumer.kerberos_options import KERBEROS, RECORDS_IN_KAFKA
from tests.sdk.consumer.test_options import config_of


def test_a_kerberos_login_is_passed_to_the_sidecar() -> None:
    given = {
        **KERBEROS,
        "sasl_kerberos_service_name": "kavka",
        "sasl_kerberos_principal": "me",
        "sasl_kerberos_keytab": "k",
    }
    assert config_of({**RECORDS_IN_KAFKA, **given}).security.sasl.kerberos == KerberosConfig(
        "kavka", "me", Path("k")
    )
    assert config_of({**RECORDS_IN_KAFKA, **KERBEROS}).security.sasl.kerberos == KerberosConfig()
