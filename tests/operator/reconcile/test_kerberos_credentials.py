"""Kerberos in `spec.auth`: keytab and krb5.conf are files of the sidecar alone, and the sidecar understands their flags."""

from pathlib import Path

from rota_operator.spec.conditions import Reason
from rota_sidecar.config.loading import read_sources
from rota_sidecar.config.sidecar_config import KerberosConfig
from tests.operator.reconcile.test_adoption import KAFKA, Json, pod, sidecar, volumes
from tests.operator.reconcile.worlds import World, resource

KERBEROS = {
    "principal": "orders$1@EXAMPLE.COM",
    "keytabSecret": {"name": "orders-login", "key": "orders.keytab"},
    "krb5ConfSecret": {"name": "realm", "key": "conf"},
}


def auth(**changes: Json) -> Json:
    return {"sasl": {"mechanism": "GSSAPI", "kerberos": {**KERBEROS, **changes}}}


def test_a_keytab_and_a_krb5_conf_are_files_of_the_sidecar() -> None:
    found = sidecar(**KAFKA, auth=auth())
    assert found["args"][-4:] == [
        "--sasl-mechanism=GSSAPI",
        "--sasl-kerberos-service-name=kafka",
        "--sasl-kerberos-principal=orders$$1@EXAMPLE.COM",
        "--sasl-kerberos-keytab=/etc/rota/auth/keytab",
    ]
    assert {"name": "KRB5_CONFIG", "value": "/etc/rota/auth/krb5.conf"} in found["env"]
    assert volumes(**KAFKA, auth=auth())["rota-auth"]["projected"]["sources"] == [
        {"secret": {"name": "orders-login", "items": [{"key": "orders.keytab", "path": "keytab"}]}},
        {"secret": {"name": "realm", "items": [{"key": "conf", "path": "krb5.conf"}]}},
    ]
    application = pod(**KAFKA, auth=auth())["containers"][0]
    assert "rota-auth" not in {each["name"] for each in application["volumeMounts"]}
    assert "KRB5_CONFIG" not in {each["name"] for each in application["env"]}


def test_properties_of_librdkafka_are_refused() -> None:
    decision = World(resource(**KAFKA, auth=auth(), config={"fetch.min.bytes": "1"})).plan()
    assert decision.refusal is not None
    assert decision.refusal.reason == Reason.UNSUPPORTED_FIELD
    assert decision.refusal.message.startswith(
        "spec.config.fetch.min.bytes is a property of librdkafka, which is not used with GSSAPI"
    )


def test_the_sidecar_understands_the_flags() -> None:
    arguments = sidecar(**KAFKA, auth=auth(serviceName="kavka"))["args"]
    given = [
        each.replace("$(POD_NAME)", "a").replace("$$", "$") for each in arguments if "settings=" not in each
    ]
    config = read_sources(given, {"ROTA_DRAIN_SOCKET": "/var/lib/rota/drain.sock"}).config()
    keytab = Path("/etc/rota/auth/keytab")
    assert config.security.sasl.kerberos == KerberosConfig("kavka", "orders$1@EXAMPLE.COM", keytab)


def test_without_a_principal_the_keytab_has_it() -> None:
    given = auth()
    del given["sasl"]["kerberos"]["principal"]
    arguments = sidecar(**KAFKA, auth=given)["args"]
    assert not any(each.startswith("--sasl-kerberos-principal") for each in arguments)
