"""
Measure the operator of a cluster: reconciling many ConsumerGroups from its start, and a thousand reports a second.

The claim: 1,000 ConsumerGroups without pods are reconciled within a minute, and 1,000 sidecars that report each second cost half a
core. The API server, its store and its controllers are real and run on the same machine; the sidecars are streams of this process,
whose pods exist and are scheduled to no node, so that their tokens are real. For reports the comparison is a server that only
reads them: the cost of gRPC in Python.
"""

import asyncio
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import page, servers
from benchmarks.peers.servers import Server
from benchmarks.peers.sidecars import Fleet, Sidecar, reporting
from rota_operator.cluster import credentials
from rota_operator.cluster.api import Api
from rota_operator.cluster.kinds import CONSUMER_GROUP, DEPLOYMENT, POD, ResourceKind
from rota_operator.reconcile.observed import Object
from tests.api_server.adopting import consumer_group, workload
from tests.support.cluster import Cluster
from tests.support.cluster.cluster import remove_leftovers, running
from tests.support.cluster.fixtures import DEFINITION
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.cluster.prepared import prepare
from tests.support.coordinator import serving
from tests.support.processes import peak_mib, processor_s
from tests.support.tree import REPO
from tests.support.workdir import workdir

SIZES = (10, 100, 1_000)
RECONCILED_S, GIVEN_UP_S = 60, 600
MEMORY_MIB = 250
GROUPS, MEMBERS, PARTITIONS = 100, 10, 10
ROUNDS, ROUND_S = 5, 5
CORES = 0.5
WRITERS = 16
TOKEN_REQUEST = ResourceKind("v1", "TokenRequest", "serviceaccounts/default/token")
FLEET = re.compile(r"fleet on (\S+)")
KAFKA = {"bootstrapServers": ["kafka.example.com:9092"]}
POLL_S = 0.5


class Reconciled(NamedTuple):
    """Cost of reconciling a number of ConsumerGroups from the operator's start."""

    groups: int
    seconds: float
    cpu_s: float
    mebibytes: float


def say(what: str) -> None:
    """Show the progress: the larger sizes take minutes."""
    print(f"{time.strftime('%X')}  {what}", file=sys.stderr, flush=True)


async def create(api: Api, kind: ResourceKind, namespace: str, manifests: Iterable[Manifest]) -> list[Object]:
    """Create objects of one kind, some at a time; return them in the order of the manifests."""
    slots = asyncio.Semaphore(WRITERS)

    async def one(manifest: Manifest) -> Object:
        async with slots:
            return await api.create(kind, namespace, manifest)

    return list(await asyncio.gather(*(one(each) for each in manifests)))


async def create_groups(
    cluster: Cluster, api: Api, coordinator: str, namespace: str, count: int, **spec: object
) -> list[Object]:
    """Create a namespace with ConsumerGroups and a Deployment for each; return the ConsumerGroups."""
    cluster.create_namespace(namespace)
    names = [f"enricher-{number}" for number in range(count)]
    await create(api, DEPLOYMENT, namespace, (workload("Deployment", name) for name in names))
    groups = (consumer_group(name, coordinator, "Deployment", name, **spec) for name in names)
    return await create(api, CONSUMER_GROUP, namespace, groups)


async def statuses(api: Api, namespace: str) -> list[Object]:
    """Return the status of each ConsumerGroup that has one."""
    return [each["status"] async for each in api.list(CONSUMER_GROUP, namespace) if "status" in each]


async def reconcile_all(cluster: Cluster, api: Api, coordinator: str, folder: Path, count: int) -> Reconciled:
    """Start an operator beside `count` new ConsumerGroups, and wait until each has its status."""
    namespace = f"of-{count}"
    await create_groups(cluster, api, coordinator, namespace, count)
    say(f"{count:,} groups created")
    operator = OperatorProcess(folder / namespace, cluster.kubeconfig, f"--namespace={namespace}")
    began = time.monotonic()
    operator.start()
    async with asyncio.timeout(GIVEN_UP_S):
        while len(await statuses(api, namespace)) < count:
            operator.check()
            await asyncio.sleep(POLL_S)
    say(f"{count:,} groups reconciled")
    cost = Reconciled(count, time.monotonic() - began, processor_s(operator.pid), peak_mib(operator.pid))
    operator.stop()
    return cost


async def create_sidecars(cluster: Cluster, api: Api, namespace: str) -> list[Sidecar]:
    """Create groups on Kafka, pods of them that run nowhere, and a token for each pod."""
    groups = await create_groups(cluster, api, "unused:1", namespace, GROUPS, **KAFKA)
    pods = {
        f"{group['metadata']['name']}-{number}": (group["metadata"], number)
        for group in groups
        for number in range(MEMBERS)
    }
    template = workload("Deployment", "any")["spec"]["template"]["spec"]
    await create(
        api,
        POD,
        namespace,
        (
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": {"rota.dev/consumer-group-uid": metadata["uid"]}},
                "spec": template,
            }
            for name, (metadata, _) in pods.items()
        ),
    )
    bound = (
        {
            "spec": {
                "audiences": ["rota"],
                "expirationSeconds": 3600,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name},
            },
        }
        for name in pods
    )
    tokens = await create(api, TOKEN_REQUEST, namespace, bound)
    return [
        Sidecar(name, f"{namespace}.{metadata['name']}", number, PARTITIONS, token["status"]["token"])
        for (name, (metadata, number)), token in zip(pods.items(), tokens, strict=True)
    ]


async def cores_used(server: Server, fleet: Fleet) -> list[tuple[float, float]]:
    """Return the cores that a server uses, and the reports a second, in each round."""
    found = []
    for _ in range(ROUNDS):
        cpu_s, sent, began = server.processor_s(), fleet.reports, time.monotonic()
        await asyncio.sleep(ROUND_S)
        took_s = time.monotonic() - began
        found.append(((server.processor_s() - cpu_s) / took_s, (fleet.reports - sent) / took_s))
    return found


async def reports(cluster: Cluster, api: Api, folder: Path) -> list[page.Line]:
    """Measure 1,000 reports a second at an operator, and at a server that only reads them."""
    namespace = "reports"
    sidecars = await create_sidecars(cluster, api, namespace)
    say(f"{len(sidecars):,} pods and tokens created")
    operator = OperatorProcess(folder / namespace, cluster.kubeconfig, f"--namespace={namespace}")
    operator.start()
    found = FLEET.search(operator.process.log.read_text())
    assert found is not None
    async with reporting(found[1], sidecars) as fleet:
        say("all sidecars report")
        async with asyncio.timeout(GIVEN_UP_S):
            # The Deployments say that they have no pods, so this is what tells that all reports are taken in.
            while sum(each.get("members", 0) for each in await statuses(api, namespace)) < len(sidecars):
                operator.check()
                await asyncio.sleep(POLL_S)
        ours = await cores_used(Server(found[1], operator.pid), fleet)
    mebibytes = peak_mib(operator.pid)
    operator.stop()
    with servers.empty("fleet") as sink:
        async with reporting(sink.address, sidecars) as fleet:
            theirs = await cores_used(sink, fleet)
    cores, others = (statistics.median(each for each, _ in side) for side in (ours, theirs))
    rate = statistics.median(each for _, each in ours)
    load = f"{rate:,.0f} reports/s of {GROUPS} groups, {PARTITIONS} partitions each"
    return [
        page.Line(
            load,
            f"{cores:.2f} cores",
            f"only read {others:.2f} cores",
            cores / others,
            page.judged(page.at_most(CORES), cores),
        ),
        page.Line(
            "memory, with them", f"{mebibytes:.0f} MiB", goal=page.judged(page.at_most(MEMORY_MIB), mebibytes)
        ),
    ]


def lines_of(costs: Sequence[Reconciled]) -> list[page.Line]:
    """Return the lines of reconciling; the ratio is that of a group's CPU time to a group's among ten."""
    each_ms = {cost.groups: cost.cpu_s / cost.groups * 1000 for cost in costs}
    return [
        page.Line(
            f"{cost.groups:,} groups, all reconciled within",
            f"{cost.seconds:.1f} s",
            f"{each_ms[cost.groups]:.0f} ms of CPU a group, {cost.mebibytes:.0f} MiB",
            each_ms[cost.groups] / each_ms[SIZES[0]],
            page.judged(page.at_most(RECONCILED_S), cost.seconds),
        )
        for cost in costs
    ]


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[Api]:
    """Connect to the cluster's API server."""
    api = Api(await credentials.load(cluster.kubeconfig))
    try:
        yield api
    finally:
        await api.close()


async def measure(cluster: Cluster, coordinator: str, folder: Path) -> list[page.Line]:
    """Measure reconciling, then reports."""
    async with connected(cluster) as api:
        costs = [await reconcile_all(cluster, api, coordinator, folder, size) for size in SIZES]
        return [*lines_of(costs), *await reports(cluster, api, folder)]


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page(
        "operator", "one operator, each group with a Deployment without pods; API server on the same machine"
    )
    with (
        workdir("operator-benchmark") as folder,
        workdir("cluster", abandoned=remove_leftovers) as cluster_folder,
        running(cluster_folder, prepare()) as cluster,
        serving(folder, ()) as coordinator,
    ):
        cluster.kubectl("apply", "--server-side", "-f", str(REPO / "crds" / "consumergroups.yaml"))
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=30s")
        coordinator.make_topic("orders", 2)
        result.show(asyncio.run(measure(cluster, coordinator.address, folder)))


if __name__ == "__main__":
    main()
