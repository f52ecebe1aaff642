"""Bearer tokens for Kafka in the request for a workload: of the pod's service account, and of a token endpoint."""

from tests.operator.reconcile.test_adoption import KAFKA, Json, pod, sidecar, volumes


def oauth(**source: Json) -> Json:
    return {"sasl": {"mechanism": "OAUTHBEARER", "oauthbearer": source}}


def test_a_service_account_token_for_kafka_is_a_file_of_the_sidecar_with_its_audience() -> None:
    auth = oauth(serviceAccountToken={"audience": "kafka", "expirationSeconds": 600})
    assert sidecar(**KAFKA, auth=auth)["args"][-2:] == [
        "--sasl-mechanism=OAUTHBEARER",
        "--sasl-oauthbearer-token-endpoint-url=file:///etc/rota/auth/kafka-token",
    ]
    assert volumes(**KAFKA, auth=auth)["rota-auth"]["projected"]["sources"] == [
        {"serviceAccountToken": {"audience": "kafka", "expirationSeconds": 600, "path": "kafka-token"}}
    ]
    assert "rota-auth" in {each["name"] for each in sidecar(**KAFKA, auth=auth)["volumeMounts"]}
    mounts = {each["name"] for each in pod(**KAFKA, auth=auth)["containers"][0]["volumeMounts"]}
    assert "rota-auth" not in mounts


def test_client_credentials_for_a_token_endpoint_are_files_of_the_sidecar() -> None:
    auth = oauth(
        tokenEndpointUrl="https://idp.example/$(POD_NAME)",
        clientIdSecret={"name": "client", "key": "id"},
        clientSecretSecret={"name": "client", "key": "secret"},
        scope="kafka read",
        caCertSecret={"name": "idp", "key": "ca.crt"},
    )
    arguments = sidecar(**KAFKA, auth=auth)["args"]
    assert arguments[-6:] == [
        "--sasl-mechanism=OAUTHBEARER",
        "--sasl-oauthbearer-token-endpoint-url=https://idp.example/$$(POD_NAME)",
        "--sasl-oauthbearer-scope=kafka read",
        "--sasl-oauthbearer-client-id-file=/etc/rota/auth/client-id",
        "--sasl-oauthbearer-client-secret-file=/etc/rota/auth/client-secret",
        "--sasl-oauthbearer-tls-ca=/etc/rota/auth/token-endpoint-ca.crt",
    ]
    assert volumes(**KAFKA, auth=auth)["rota-auth"]["projected"]["sources"] == [
        {"secret": {"name": name, "items": [{"key": key, "path": path}]}}
        for name, key, path in (
            ("client", "id", "client-id"),
            ("client", "secret", "client-secret"),
            ("idp", "ca.crt", "token-endpoint-ca.crt"),
        )
    ]
