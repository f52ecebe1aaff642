"""
SparkApplications under Kubeflow's Spark operator: drivers and executors are pods, and drivers are members of their group.

One namespace runs through the module, so the tests stand in the order of its story: the example first, then a group of readers.
"""

import urllib.request
from collections.abc import Iterator

import pytest

from tests.cluster import planted
from tests.cluster.offset_resets import OffsetResets, restarts
from tests.cluster.planted import Output
from tests.cluster.spark_readers import NAME, Readers, open_readers
from tests.cluster.spark_shop import (
    DRIVER,
    EXECUTOR,
    PARTITIONS,
    SHOP,
    SparkShop,
    open_shop,
)
from tests.support import rota_images
from tests.support.cluster import Cluster
from tests.support.cluster.kubectl import only_row

SUITE = "spark-pods"
# The first of them starts the cluster, and waits for Rota's parts, a Spark operator and Spark.
pytestmark = [pytest.mark.cluster, pytest.mark.soak(SUITE), pytest.mark.timeout(2_700)]
# What starts driver after driver: minutes of two cores.
long = pytest.mark.soak(SUITE, only=True)

PAGES = ("/environment/", "/jobs/", "/stages/", "/SQL/", "/StreamingQuery/", "/api/v1/applications")
PAGES_PORT, TIMEOUT_S = 4040, 60
# Of the driver, by Spark's own name.
CONTAINER = "spark-kubernetes-driver"
# Names of a driver without executors have its application's id.
PRINT_EVENTS = "find /tmp -type f -path '*local-*' -exec cat {} +"


@pytest.fixture(scope="module")
def shop(rota_cluster: Cluster) -> Iterator[SparkShop]:
    """The example runs, with one application; its shop sells less from then on."""
    with open_shop(rota_cluster, rota_images.prepare()) as opened:
        opened.wait_shared(1)
        opened.sell_less()
        yield opened


@pytest.fixture(scope="module")
def readers(shop: SparkShop) -> Readers:
    """The example is gone, and a second group of its topic runs, with one application."""
    shop.delete()
    return open_readers(shop)


def outputs(group: SparkShop) -> list[Output]:
    """Read what is to be seen of the group: what planted secrets are searched for in, and its drivers' pages."""
    found = planted.outputs(group.cluster, [SHOP])
    for pod in group.drivers().values():
        with group.cluster.forward(pod["status"]["podIP"], PAGES_PORT) as port:
            for page in PAGES:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=TIMEOUT_S) as response:
                    found.append(Output("page", page, response.read().decode()))
    return found


def test_the_driver_of_an_applied_example_is_a_member_and_its_executors_enrich(shop: SparkShop) -> None:
    shown = only_row(shop.kubectl("get", "cg"))
    assert (shown["MEMBERS"], shown["PARTITIONS"], shown["READY"]) == ("1", str(PARTITIONS), "True")
    [placement] = shop.status()["placements"]
    assert placement["podName"] == shop.drivers()[0]["metadata"]["name"]
    shop.wait("orders have their price", lambda: shop.enriched() > 0)
    assert len(shop.pods(EXECUTOR)) == 2


def test_the_image_has_no_archives_of_sparks_sources(shop: SparkShop) -> None:
    # Each Python process would compile what it imports from them.
    driver = shop.drivers()[0]["metadata"]["name"]
    inside = ("exec", driver, f"--container={CONTAINER}", "--", "ls")
    assert "jars" in shop.kubectl(*inside, "/opt/spark/")
    assert shop.kubectl(*inside, "/opt/spark/python").split() == ["pyspark"]


def test_the_database_of_the_example_is_named_nowhere(shop: SparkShop) -> None:
    found = outputs(shop)
    assert {each.kind for each in found} >= planted.KINDS | {"page"}
    assert planted.find({"password of the database": shop.password}, found) == []


def test_a_deleted_group_leaves_no_pods(shop: SparkShop) -> None:
    shop.delete()
    shop.wait("its pods are gone", lambda: not shop.pods())
    assert shop.states() == {}


def test_a_reset_is_seen_by_the_query_without_a_restart(readers: Readers) -> None:
    group = readers.group
    before, after = restarts(group.pods(DRIVER)), readers.last()
    resets = OffsetResets(group.cluster, SHOP, NAME)
    resets.request("again", dry_run=False, earliest=True)
    resets.wait_phase("again", "Completed")
    group.wait("all that was read is read again", lambda: readers.repeated(after) >= after)
    resets.wait_condition("Ready", "status=True")
    assert restarts(group.pods(DRIVER)) == before
    driver = group.drivers()[0]["metadata"]["name"]
    events = group.kubectl("exec", driver, f"--container={CONTAINER}", "--", "sh", "-c", PRINT_EVENTS)
    found = [Output("event log", "driver", events), *outputs(group)]
    assert "SparkListenerEnvironmentUpdate" in events
    assert planted.find({"password of the database": group.password}, found) == []


def test_fewer_partitions_for_each_application_add_one(readers: Readers) -> None:
    group = readers.group
    [uid] = restarts(group.pods(DRIVER))
    group.patch(("/spec/spark/partitionsPerApplication", PARTITIONS // 2))
    group.wait_shared(2)
    # The first one works on.
    assert group.drivers()[0]["metadata"]["uid"] == uid


@long
def test_the_partitions_of_a_deleted_driver_move_until_its_successor_joins(readers: Readers) -> None:
    group = readers.group
    first, second = group.drivers()[0], group.drivers()[1]
    group.wait("both read", lambda: len(readers.partitions_of(second)) == PARTITIONS // 2)
    after = readers.last()
    group.kubectl("delete", "pod", second["metadata"]["name"], "--wait=false")
    group.wait(
        "the first driver reads all partitions",
        lambda: len(readers.partitions_of(first, after)) == PARTITIONS,
    )
    group.wait_shared(2)
    drivers = group.drivers()
    assert drivers[0]["metadata"]["uid"] == first["metadata"]["uid"]
    assert drivers[1]["metadata"]["uid"] != second["metadata"]["uid"]


@long
def test_a_changed_template_replaces_one_application_after_the_other_and_repeats_nothing(
    readers: Readers,
) -> None:
    group, after = readers.group, readers.last()
    before = group.states()
    seen = [before]

    def replaced() -> bool:
        now = group.states()
        if now != seen[-1]:
            seen.append(now)
        return now.keys() == before.keys() and all(
            now[number][0] != before[number][0] and now[number][1] == "COMPLETED" for number in before
        )

    # Drivers of the new template end when they have read what is there.
    group.patch(
        ("/spec/spark/template/spec/arguments", ["once"]),
        ("/spec/spark/template/spec/restartPolicy", {"type": "Never"}),
    )
    group.wait("both are replaced, and have ended", replaced)
    # When the second one was last seen as it was before.
    uid, state = [each for each in seen if each.get(1, ("",))[0] == before[1][0]][-1][0]
    assert uid != before[0][0], seen
    assert state in ("RUNNING", "SUCCEEDING", "COMPLETED"), seen
    assert readers.repeated(after) == 0
    assert readers.last() > after


@long
def test_a_driver_that_ends_leaves_no_running_pod(readers: Readers) -> None:
    group = readers.group
    group.wait(
        "all containers have ended",
        lambda: {each["status"]["phase"] for each in group.pods()} <= {"Succeeded"},
    )
    group.wait("it has no members", lambda: group.status()["members"] == 0)
    group.delete()
    group.wait("its pods are gone", lambda: not group.pods())
