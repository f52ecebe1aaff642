"""
Effects of the fields of a ConsumerGroup on running groups: all of them beside each other on one laptop, each with an
application that logs the records it receives.

That each field reaches its sidecar is tested in `tests/operator/plan`; how the sidecar acts on it, in the sidecar's tests.
"""

from collections.abc import Iterator

import pytest

import rota
from rota_proto.coordinator.v1 import admin_pb2
from tests.cli.groups import commit, fill
from tests.operator.local.groups import WITHIN_S, Groups
from tests.support.ports import free_port

pytestmark = pytest.mark.process

NOTHING = -1


def declare(groups: Groups) -> None:
    """All groups, each for some fields."""
    groups.add(
        "named",
        {
            "groupId": "by-its-own-name",
            "topicPattern": "named-.*",
            "replicas": 2,
            "assignment": {"strategy": "range"},
            "sidecar": {"container": "app"},
        },
        "poll",
        containers=["first"],
    )
    groups.add("asleep", {"topics": ["asleep"], "suspend": True}, "poll")
    late = {"initialOffset": "latest", "commit": {"mode": "sync"}}
    config = {"isolation.level": "read_committed"}
    groups.add("late", {"topics": ["late"], "offsets": late, "config": config}, "poll")
    groups.add("expired", {"topics": ["expired"], "offsets": {"onOffsetExpired": "earliest"}}, "poll")
    failing = {
        "ordering": "unordered",
        "concurrency": 7,
        "retry": 1,
        "deadLetterTopic": "letters",
        "backoffPolicy": "constant",
        "backoffDelay": "PT0.4S",
    }
    groups.add("failing", {"topics": ["failing"], "delivery": failing}, "handle", "unordered", "7", "failing")
    patient = {"retry": 2, "deadLetterTopic": "letters", "backoffPolicy": "linear", "backoffDelay": "PT0.3S"}
    groups.add(
        "patient", {"topics": ["patient"], "delivery": patient}, "handle", "partition", "64", "patient"
    )
    for name, seconds in (("often", 1), ("seldom", 3_600)):
        groups.add(name, {"topics": ["counted"], "offsets": {"commit": {"intervalSeconds": seconds}}}, "poll")
    slow = {"rateLimit": {"max": 5}, "priorities": {"urgent": 10}}
    groups.add("slow", {"topics": ["bulk", "urgent"], "delivery": slow}, "poll")
    port = str(free_port())
    served = {"mode": "http", "http": {"url": f"http://127.0.0.1:{port}/"}, "timeout": "PT1S"}
    groups.add("served", {"topics": ["served"], "delivery": served}, "serve", port)
    hangs = {"sessionTimeoutSeconds": 6, "heartbeatIntervalSeconds": 1, "processingTimeoutSeconds": 2}
    # What it has in its hands is not waited for in the end.
    ends = {"terminationDrainSeconds": 1}
    groups.add("hanging", {"topics": ["hanging"], "membership": hangs, "sidecar": ends}, "poll")
    keeps = {"commit": {"mode": "external"}}
    groups.add("keeping", {"topics": ["keeping"], "offsets": keeps}, "poll")


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    groups = Groups(tmp_path_factory.mktemp("fields"))
    # What is there before anybody joins.
    groups.add("nobody", {"topics": ["nothing"]}, "poll")
    with groups.running(groups.manifests / "nobody.yaml"):
        for topic in (
            "named-a",
            "named-b",
            "asleep",
            "late",
            "failing",
            "served",
            "hanging",
            "keeping",
            "letters",
            "patient",
            "counted",
        ):
            fill(groups.address, topic, 1)
        for topic in ("bulk", "urgent", "expired"):
            fill(groups.address, topic, 10)
        commit(groups.address.removeprefix("rota://"), "default.expired", {("expired", 0): 1_000})
    (groups.manifests / "nobody.yaml").unlink()
    declare(groups)
    with groups.running(groups.manifests) as groups.process:
        yield groups


def send(groups: Groups, topic: str, *values: str) -> None:
    with rota.Producer(groups.address) as producer:
        for value in values:
            producer.send(topic, value.encode())


def test_a_group_has_its_name_its_topics_its_strategy_and_its_replicas(groups: Groups) -> None:
    groups.until(
        "both topics", lambda: {topic for _, topic, _ in groups.lines("named")} == {"named-a", "named-b"}
    )
    stable = admin_pb2.GROUP_STATE_STABLE
    groups.until("two members", lambda: len(groups.described("by-its-own-name").members) == 2)
    groups.until("their shares", lambda: groups.described("by-its-own-name").state == stable)
    found = groups.described("by-its-own-name")
    assert found.protocol_name == "range"
    assert sorted(member.client_id for member in found.members) == ["named-0", "named-1"]


def test_who_is_suspended_is_a_member_and_reads_nothing(groups: Groups) -> None:
    groups.until("its member", lambda: "assigned asleep-0" in groups.log("asleep-0"))
    # The others have all been given theirs by then.
    groups.until("the others", lambda: len(groups.values("slow")) == 20)
    assert groups.values("asleep") == []


def test_who_begins_late_gets_what_comes_and_only_what_counts(groups: Groups) -> None:
    groups.until("its member", lambda: "assigned late-0" in groups.log("late-0"))
    with rota.Producer(groups.address, transactional_id="fields") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("late", b"aborted").result(WITHIN_S)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("late", b"committed")
    groups.until("what counts", lambda: groups.values("late") != [])
    assert groups.values("late") == ["committed"]


def test_who_has_expired_goes_on_where_it_is_to(groups: Groups) -> None:
    groups.until("all of it", lambda: len(groups.values("expired")) == 10)


def test_what_fails_is_retried_as_often_and_as_late_as_it_is_to_be(groups: Groups) -> None:
    send(groups, "failing", "fail")
    groups.until("two deliveries", lambda: groups.values("failing").count("fail") == 2)
    first_ms, second_ms = (at_ms for at_ms, _, value in groups.lines("failing") if value == "fail")
    assert second_ms - first_ms >= 400
    with rota.LogReader(groups.address) as reader:
        # One is there from the beginning.
        (dead_letter,) = next(
            iter(fetched for fetched in reader.fetch({("letters", 0): 1}, max_wait_ms=WITHIN_S * 1000))
        )
    assert (dead_letter.value, dict(dead_letter.headers)["rota-dlq-deliveries"]) == (b"fail", b"2")
    assert groups.values("failing").count("fail") == 2


def test_the_wait_before_a_retry_grows_as_it_is_to(groups: Groups) -> None:
    send(groups, "patient", "fail")
    groups.until("three deliveries", lambda: groups.values("patient").count("fail") == 3)
    first_ms, second_ms, third_ms = (at_ms for at_ms, _, value in groups.lines("patient") if value == "fail")
    assert second_ms - first_ms >= 300
    # As with one that doubles; a constant one would not have grown.
    assert third_ms - second_ms >= 600


def test_offsets_are_committed_as_often_as_they_are_to_be(groups: Groups) -> None:
    groups.until("the record", lambda: groups.values("often") == groups.values("seldom") == ["0-0"])
    groups.until("the commit", lambda: groups.committed("default.often", "counted") == 1)
    # Where it begins is committed at once, and nothing else.
    assert groups.committed("default.seldom", "counted") == 0


def test_records_come_no_faster_than_they_are_to_and_the_urgent_first(groups: Groups) -> None:
    groups.until("all of it", lambda: len(groups.values("slow")) == 20)
    lines = groups.lines("slow")
    # Five a second are twenty in almost four; the application itself may be late with the first.
    assert lines[-1][0] - lines[0][0] >= 2_000
    topics = [topic for _, topic, _ in lines]
    last_urgent = len(topics) - 1 - topics[::-1].index("urgent")
    # Some may have been read, and handed out, before the first urgent one was there.
    assert topics[:last_urgent].count("bulk") <= 5


def test_records_are_sent_by_http(groups: Groups) -> None:
    groups.until("the one", lambda: groups.lines("served") != [])
    assert groups.lines("served")[0][1:] == ("served", "0-0")
    send(groups, "served", "hang")
    # An answer is waited for so long, and then the record is sent again.
    groups.until("the second time", lambda: groups.values("served").count("hang") == 2)
    first_ms, second_ms = (at_ms for at_ms, _, value in groups.lines("served") if value == "hang")
    assert second_ms - first_ms >= 1_000


def test_an_application_that_hangs_is_noticed_when_it_is_to_be(groups: Groups) -> None:
    send(groups, "hanging", "hang")
    said = "the application has given no verdict on a record of hanging-0 within 2 s"
    groups.until("the sidecar says so", lambda: said in groups.log("hanging-0"))


def test_who_keeps_offsets_itself_has_none_committed(groups: Groups) -> None:
    groups.until("the record", lambda: groups.values("keeping") == ["0-0"])
    # Of a group that commits as it goes there is something by then.
    groups.until("another's commit", lambda: groups.committed("default.expired", "expired") == 10)
    assert groups.committed("default.keeping", "keeping") == NOTHING
