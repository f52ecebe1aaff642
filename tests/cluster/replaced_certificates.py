"""
Replaces the certificates of a release and their authority under its pods, as the chart's Job does in the course of years.

`issue` performs the Job's next step at a time when it is due; `wait_trusted` and `wait_served` wait until the pods have followed.
"""

import asyncio
import time
from pathlib import Path

from rota_operator.certificates.job import CertificatesRun
from rota_operator.certificates.options import ServerSecret
from rota_operator.certificates.rotation import DAY_S
from rota_operator.cluster.api import Api
from rota_operator.cluster.credentials import load
from rota_service.event_log import open_event_log
from tests.cluster import coordinator_client
from tests.cluster.released import RELEASE, Release
from tests.support.cluster import WITHIN_S
from tests.support.cluster.orders import ENRICHER
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.processes import wait_for

LOOK_EACH_S = 0.5
FLEET_PORT = 7083
# Part and its port.
SERVERS = {"operator": FLEET_PORT, "coordinator": coordinator_client.PORT}
# At which the successor of an authority that is issued now is announced, and has been for long enough.
LATER_S = 2900 * DAY_S
TRUSTED = "/var/run/secrets/rota/ca.crt"
# Run in a container: waits until a file has this text. The last argument is in seconds.
HAS_TEXT = """
import sys, time
path, text, within_s = sys.argv[1:]
ends_s = time.monotonic() + float(within_s)
while (found := open(path).read()) != text:
    if time.monotonic() > ends_s:
        sys.exit(f"{path} has {found}")
    time.sleep(0.2)
"""


def issue(release: Release, folder: Path) -> None:
    """Run the Job's next step at a time when it is due."""
    servers = [ServerSecret(f"{RELEASE}-{part}-tls", tuple(dns_names(release, part))) for part in SERVERS]

    async def run() -> None:
        api = Api(await load(release.cluster.kubeconfig))
        now_s = time.time() + LATER_S  # noqa: TID251  the Job's clock
        job = CertificatesRun(api, folder, now_s, open_event_log("certificates", "text"))
        await job.run(release.namespace, f"{RELEASE}-authority", servers, 90)
        await api.close()

    asyncio.run(run())


def dns_names(release: Release, part: str) -> list[str]:
    """DNS names of a server's certificate, as the chart's Job has them in its arguments."""
    [job, *_] = release.cluster.get("jobs", namespace=release.namespace)["items"]
    prefix = f"--certificate={RELEASE}-{part}-tls="
    [names] = [
        each.removeprefix(prefix)
        for each in job["spec"]["template"]["spec"]["containers"][0]["args"]
        if each.startswith(prefix)
    ]
    return str(names).split(",")


def wait_trusted(release: Release, bundle: str) -> None:
    """Wait until each pod of the example finds these authorities in its files: a process in each of them waits."""
    for pod in release.pods(release.shop, f"app in ({ENRICHER}, {PRODUCER})"):
        inside = (pod["metadata"]["name"], "--container=app", "--", "python", "-c", HAS_TEXT)
        release.kubectl("exec", *inside, TRUSTED, bundle, str(WITHIN_S))


def wait_served(release: Release, authority: bytes) -> None:
    """Wait until operator and coordinator serve by certificates of this authority."""
    for part, port in SERVERS.items():
        name, host = f"{RELEASE}-{part}.{release.namespace}", address_of(release, part)
        wait_for(
            f"{name} by the successor",
            lambda name=name, port=port, host=host: coordinator_client.serves_by(  # type: ignore[misc]
                release.cluster, host, port, name, authority
            ),
            within_s=WITHIN_S,
            poll_s=LOOK_EACH_S,
        )


def address_of(release: Release, part: str) -> str:
    """Address of the pod that serves: of two operators, the leader."""
    pods = release.pods(release.namespace, f"app.kubernetes.io/component={part}")
    if part == "operator":
        lease = release.cluster.get(f"lease/{RELEASE}-operator", namespace=release.namespace)
        leader = lease["spec"]["holderIdentity"].rpartition("_")[0]
        pods = [each for each in pods if each["metadata"]["name"] == leader]
    [pod] = pods
    return str(pod["status"]["podIP"])
