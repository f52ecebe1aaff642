"""
Secrets in every place where users and the chart put one, in a release of the chart, and a control that is to be found.

A group on Kafka has a password, and no broker answers; the operator has a login of its own for it, and a private key for another
group, whose pods are refused. A coordinator on PostgreSQL has a password and a token. The application has a variable.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from tests.chart.rendered import named, pods
from tests.cluster.planted import Output, lines_of, planted, tokens_of
from tests.cluster.planted import logs as logs_of
from tests.cluster.released import Release
from tests.cluster.replaced_certificates import LOOK_EACH_S
from tests.support import helm
from tests.support.cluster import WITHIN_S
from tests.support.cluster.manifests import Manifest, container, deployment
from tests.support.cluster.orders import ENRICHER
from tests.support.cluster.rota_manifests import SECURITY
from tests.support.processes import Process, wait_for

LEDGER, REFUSED, POSTGRESQL, CONTROL = "ledger", "refused", "planted-postgresql", "control"
OPERATOR_LOGIN, OPERATOR_KEY, LOGIN, TOKENS, URL = (
    f"planted-{each}" for each in ("operator-login", "operator-key", "login", "tokens", "url")
)
# Nobody listens there.
BROKER, GUARDED, DATABASE = "127.0.0.1:9", "127.0.0.1:10", "127.0.0.1:11"
PAUSE = "import signal; signal.pause()"
# Run in a container of the application: its arguments have the text, and so has its container's log.
SAY = "import sys, signal; print(sys.argv[1], file=open('/proc/1/fd/1', 'w'), flush=True); signal.pause()"


class Planted(NamedTuple):
    """Secrets by where they are; `control` is none, and is to be found."""

    password: str
    operators_password: str
    operators_key: str
    database_password: str
    token: str
    variable: str
    control: str

    @classmethod
    def new(cls) -> "Planted":
        """Draw all of them."""
        return cls(*(planted() for _ in cls._fields))

    def hidden(self) -> Mapping[str, str]:
        """Return those that are to be found nowhere."""
        return {name: value for name, value in self._asdict().items() if name != "control"}

    def values(self) -> list[str]:
        """Flags of Helm: the operator's own credentials at Kafka."""
        login = {
            "name": "login",
            "bootstrapServers": [BROKER],
            "secret": OPERATOR_LOGIN,
            "saslMechanism": "PLAIN",
        }
        key = {"name": "key", "bootstrapServers": [GUARDED], "secret": OPERATOR_KEY, "tls": True}
        return [f"--set-json=kafka.clusters={json.dumps([login, key])}"]

    def of_release(self) -> list[Manifest]:
        """Secrets in the release's namespace, before it is installed."""
        url = f"postgresql://rota:{self.database_password}@{DATABASE}/rota"
        # It cannot be parsed: messages about it are the ones that could quote it.
        pem = f"-----BEGIN PRIVATE KEY-----\n{self.operators_key}\n-----END PRIVATE KEY-----\n"
        return [
            secret(OPERATOR_LOGIN, username="rota", password=self.operators_password),
            secret(OPERATOR_KEY, **{"tls.crt": pem, "tls.key": pem}),
            secret(TOKENS, tokens=f"dashboard plain:{self.token} read:*\n"),
            secret(URL, url=url),
        ]

    def of_applications(self, image: str) -> list[Manifest]:
        """The groups on Kafka; neither workload has pods before it is adopted, and one never has."""
        user, password = ({"name": LOGIN, "key": each} for each in ("username", "password"))
        sasl = {"mechanism": "PLAIN", "userSecret": user, "passwordSecret": password}
        budget = {"maxUnavailable": 1}
        return [
            secret(LOGIN, username="ledger", password=self.password),
            stateful_set(LEDGER, container("app", image, PAUSE, securityContext=SECURITY)),
            group(LEDGER, BROKER, auth={"sasl": sasl}, podDisruptionBudget=budget),
            stateful_set(REFUSED, container("app", image, PAUSE)),
            group(REFUSED, GUARDED),
        ]

    def postgresql(self, namespace: str, *flags: str) -> Manifest:
        """Pod of a coordinator on PostgreSQL as the chart makes it, beside the one of the release."""
        objects = helm.render(
            *flags,
            "--set=coordinator.store.type=postgresql,coordinator.replicas=2",
            f"--set=coordinator.store.postgresql.urlSecret.name={URL},coordinator.tokensSecret.name={TOKENS}",
            namespace=namespace,
        )
        spec = dict(pods([named(objects, "StatefulSet", "rota-coordinator")])).popitem()[1]["spec"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POSTGRESQL}, "spec": spec}

    def start_control(self, release: Release) -> Process:
        """Put the control into each kind of place; kill the process when it has been found."""
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONTROL},
            "data": {"key": self.control},
        }
        # Its name is in its status, in Events about it, and in metrics.
        release.cluster.apply([config_map, group(self.control, BROKER)], namespace=release.shop)
        pod = release.pods(release.shop, f"app={ENRICHER}")[0]["metadata"]["name"]
        where = (pod, f"--namespace={release.shop}", "--container=app")
        process = release.cluster.start_kubectl("exec", *where, "--", "python", "-c", SAY, self.control)
        process.wait_until(lambda: self.control in release.cluster.kubectl("logs", *where), within_s=WITHIN_S)
        release.wait_group("jsonpath={.status.groupId}", self.control)
        events = ("events", f"--field-selector=involvedObject.name={self.control}", "--output=name")
        process.wait_until(lambda: bool(release.kubectl("get", *events)), within_s=WITHIN_S)
        return process


def group(name: str, server: str, **spec: object) -> Manifest:
    """A ConsumerGroup of the StatefulSet of its name, on Kafka."""
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": name},
        "spec": {
            "bootstrapServers": [server],
            "topics": ["planted"],
            "replicas": 1,
            "scaleTargetRef": {"kind": "StatefulSet", "name": name},
            **spec,
        },
    }


def stateful_set(name: str, app: Manifest) -> Manifest:
    """A StatefulSet without pods."""
    found = deployment(name, app, replicas=0)
    return {**found, "kind": "StatefulSet", "spec": {**found["spec"], "serviceName": name}}


def secret(name: str, **data: str) -> Manifest:
    """A Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def issued(release: Release) -> dict[str, str]:
    """Secrets that the release has made itself: private keys, and the tokens of all pods."""
    found: dict[str, str] = {}
    for name in ("rota-authority", "rota-operator-tls", "rota-coordinator-tls"):
        for key, value in release.secret(name).items():
            if key.endswith(".key"):
                found |= lines_of(f"{name}/{key}", value.decode())
    for namespace in (release.namespace, release.shop):
        tokens = tokens_of(release.cluster, release.pods(namespace))
        assert tokens
        found |= tokens
    return found


def failure_said(release: Release, namespace: str, pod: str, failure: str) -> Output:
    """
    Wait until a pod's log has a failure; return the log.

    A container that ends with it is replaced again and again: its log may be gone when all logs are read.
    """
    texts: list[str] = []

    def is_said() -> bool:
        texts.append(said(release, namespace, pod))
        return failure in texts[-1]

    wait_for(f"{failure} in the log of {pod}", is_said, within_s=WITHIN_S, poll_s=LOOK_EACH_S)
    return Output("log", f"{namespace}/{pod}", texts[-1])


def said(release: Release, namespace: str, pod: str) -> str:
    """Return what a pod's containers have logged, those before their restarts too; empty before they run."""
    found = [each for each in release.pods(namespace) if each["metadata"]["name"] == pod]
    return "".join(output.text for each in found for output in logs_of(release.cluster, each))
