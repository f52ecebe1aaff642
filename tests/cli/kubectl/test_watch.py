"""`kubectl rota groups watch` follows a ConsumerGroup over every end that a watch can have, and shows each change once."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rota_cli.clusters.kubernetes import follow
from tests.cli.kubectl.api_server import Answer, Sent, Silent, Watch, refusal
from tests.cli.kubectl.conftest import Kubectl, Serve
from tests.cli.kubectl.resources import CONDITIONS, NAME, PATH, STATUS, condition, group

STUCK = {**STATUS, "phase": "Stuck", "conditions": [condition("Ready", "False", "PartitionsStuck", "orders-3"), *CONDITIONS[1:]]}  # fmt: skip
SCALED = {
    **STATUS,
    "generation": 5,
    "members": 3,
    "desiredReplicas": 3,
    "placements": [
        {"podName": "orders-0", "memberId": "a", "partitions": 4},
        {"podName": "orders-1", "memberId": "b", "partitions": 4},
        {"podName": "orders-2", "memberId": "c", "partitions": 4},
    ],
}
# Ends the command: a watch is not tried again without the right to it.
DENIED = refusal(403, 'forbidden: User "alice" cannot watch resource "consumergroups"')
GONE = {"kind": "Status", "code": 410, "reason": "Expired"}


def event(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": found}


def bookmark(version: str) -> dict[str, Any]:
    return event("BOOKMARK", {"kind": "ConsumerGroup", "metadata": {"resourceVersion": version}})


def script(
    lists: Iterator[list[dict[str, Any]]], watches: Iterator[Answer | Silent | Watch]
) -> Callable[[Sent], Any]:
    """Answer lists and watches in order; a version of a list is that of its object, else 50."""

    def answer(sent: Sent) -> Answer | Silent | Watch:
        if sent.is_watch:
            return next(watches, DENIED)
        if sent.path == f"{PATH}/{NAME}":
            return Answer(200, group())
        items = next(lists)
        version = items[0]["metadata"]["resourceVersion"] if items else "50"
        return Answer(200, {"metadata": {"resourceVersion": version}, "items": items})

    return answer


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times that a follower waits, which pass at once."""
    found: list[float] = []
    monkeypatch.setattr("rota_cli.commands.kubectl.watch.wait_s", found.append)
    return found


def changes(stdout: str) -> list[list[str]]:
    return [json.loads(line)["changes"] for line in stdout.splitlines()]


def test_each_change_is_shown_with_its_time(serve: Serve, kubectl: Kubectl) -> None:
    serve(script(iter([[group()]]), iter([Watch([event("MODIFIED", group(STUCK, version="101"))])])))
    done = kubectl("groups", "watch", NAME)
    first, second = done.stdout.splitlines()
    assert first.partition("   ")[2].startswith(
        "Stable in generation 4; Ready is True (PartitionsProgress): 12 partitions"
    )
    assert second.partition("   ")[2] == "Stuck in generation 4; Ready is False (PartitionsStuck): orders-3"
    assert done.code == 1
    assert done.stderr.startswith("rota: alice may not watch consumergroups.rota.dev in namespace shop at")


def test_members_that_join_leave_and_move_are_named(serve: Serve, kubectl: Kubectl) -> None:
    watch = Watch([event("MODIFIED", group(SCALED, version="101")), event("MODIFIED", group(version="102"))])
    serve(script(iter([[group()]]), iter([watch])))
    _, grown, shrunk = changes(kubectl("groups", "watch", NAME, "-o", "json").stdout)
    assert grown == [
        "desired replicas 2 → 3", "Stable in generation 5", "orders-0 6 → 4 partitions", "orders-1 6 → 4 partitions",
        "orders-2 joined with 4 partitions",
    ]  # fmt: skip
    assert shrunk[-1] == "orders-2 left"


def test_members_of_an_unknown_group_have_not_left(serve: Serve, kubectl: Kubectl) -> None:
    unknown = {key: value for key, value in STATUS.items() if key not in ("members", "placements")}
    serve(script(iter([[group()]]), iter([Watch([event("MODIFIED", group(unknown, version="101"))])])))
    assert changes(kubectl("groups", "watch", NAME, "-o", "json").stdout)[1] == ["members 2 → unknown"]


def test_a_lag_that_changes_alone_is_no_change(serve: Serve, kubectl: Kubectl) -> None:
    later = group({**STATUS, "lag": {"total": 9}}, version="101")
    serve(script(iter([[group()]]), iter([Watch([event("MODIFIED", later)])])))
    assert len(changes(kubectl("groups", "watch", NAME, "-o", "json").stdout)) == 1


def test_a_watch_that_has_ended_goes_on_from_the_last_bookmark(
    serve: Serve, kubectl: Kubectl, waits: list[float]
) -> None:
    watches = [Watch([bookmark("200")]), Watch([event("MODIFIED", group(STUCK, version="201"))])]
    server = serve(script(iter([[group()]]), iter(watches)))
    assert len(changes(kubectl("groups", "watch", NAME, "-o", "json").stdout)) == 2
    assert [each.query["resourceVersion"] for each in server.watches] == ["100", "200", "201"]
    query = server.watches[0].query
    assert (query["fieldSelector"], query["allowWatchBookmarks"]) == (f"metadata.name={NAME}", "true")
    assert int(query["timeoutSeconds"]) > 0
    assert waits == []


def test_a_connection_that_breaks_is_opened_again(serve: Serve, kubectl: Kubectl) -> None:
    watches = [
        Watch([event("MODIFIED", group(STUCK, version="101"))], is_cut=True),
        Watch([event("MODIFIED", group(version="102"))]),
    ]
    server = serve(script(iter([[group()]]), iter(watches)))
    done = kubectl("groups", "watch", NAME, "-o", "json")
    assert [each[0] for each in changes(done.stdout)[1:]] == [
        "Stuck in generation 4",
        "Stable in generation 4",
    ]
    assert [each.query["resourceVersion"] for each in server.watches] == ["100", "101", "102"]
    assert done.stderr.startswith("rota: the watch is interrupted, and goes on by itself: http://127.0.0.1:")


def test_a_watch_without_a_byte_is_opened_again(
    serve: Serve, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota_cli.clusters.kubernetes.api.WATCH_S", 0)
    watches: list[Silent | Watch] = [Silent(), Watch([event("MODIFIED", group(STUCK, version="101"))])]
    server = serve(script(iter([[group()]]), iter(watches)))
    done = kubectl("groups", "watch", NAME, "--timeout", "0.5", "-o", "json")
    assert changes(done.stdout)[1][0] == "Stuck in generation 4"
    assert [each.query["resourceVersion"] for each in server.watches] == ["100", "100", "101"]


def test_an_api_server_that_cannot_serve_is_asked_less_and_less_often_and_said_once(
    serve: Serve, kubectl: Kubectl, waits: list[float]
) -> None:
    busy = refusal(503, "etcd is away")
    serve(script(iter([[group()]]), iter([busy] * 7)))
    done = kubectl("groups", "watch", NAME)
    warning, end = done.stderr.splitlines()
    assert warning.endswith("cannot serve consumergroup shop/orders-enricher now (etcd is away): try again")
    assert "may not watch" in end
    longest = [1, 2, 4, 8, 16, follow.BACKOFF_S_MAX, follow.BACKOFF_S_MAX]
    assert all(most / 2 <= waited <= most for most, waited in zip(longest, waits, strict=True)), waits


@pytest.mark.parametrize(
    "gone", [refusal(410, "too old"), Watch([event("ERROR", GONE)])], ids=["answer", "event"]
)
def test_a_history_that_is_gone_is_listed_anew_and_shown_as_one_change(
    serve: Serve, kubectl: Kubectl, gone: Answer | Watch
) -> None:
    server = serve(script(iter([[group()], [group(SCALED, version="300")]]), iter([gone])))
    second = changes(kubectl("groups", "watch", NAME, "-o", "json").stdout)[1]
    assert second[0] == "desired replicas 2 → 3"
    assert [each.query["resourceVersion"] for each in server.watches] == ["100", "300"]


def test_a_history_that_is_always_gone_is_not_listed_over_and_over_at_once(
    serve: Serve, kubectl: Kubectl, waits: list[float]
) -> None:
    serve(script(iter([[group()]] * 5), iter([refusal(410, "too old")] * 4)))
    kubectl("groups", "watch", NAME)
    assert len(waits) == 4
    assert min(waits) >= 0.5


def test_watches_that_end_without_an_event_are_not_opened_over_and_over_at_once(
    serve: Serve, kubectl: Kubectl, waits: list[float]
) -> None:
    serve(script(iter([[group()]]), iter([Watch([])] * 4)))
    kubectl("groups", "watch", NAME)
    assert len(waits) == 4
    assert all(0.5 <= each <= 1 for each in waits)


def test_a_group_that_is_deleted_and_created_again(serve: Serve, kubectl: Kubectl) -> None:
    again = group({}, version="103")
    again["metadata"]["uid"] = "u-2"
    watch = Watch([event("DELETED", group(version="102")), event("ADDED", again)])
    serve(script(iter([[group()]]), iter([watch])))
    assert changes(kubectl("groups", "watch", NAME, "-o", "json").stdout)[1:] == [
        ["consumergroup deleted"],
        ["consumergroup created", "phase unknown"],
    ]


def test_a_group_that_was_replaced_while_no_watch_was_open(serve: Serve, kubectl: Kubectl) -> None:
    again = group(version="400")
    again["metadata"]["uid"] = "u-2"
    serve(script(iter([[group()], [again]]), iter([refusal(410, "too old")])))
    assert changes(kubectl("groups", "watch", NAME, "-o", "json").stdout)[1][0] == "consumergroup created"


def test_a_name_without_a_group_is_an_error(serve: Serve, kubectl: Kubectl) -> None:
    serve(lambda sent: refusal(404, "not found", name=NAME))
    done = kubectl("groups", "watch", NAME)
    assert done.code == 4
    assert done.error.startswith("consumergroup shop/orders-enricher not found at")


def test_output_as_yaml_is_one_document_for_each_change(serve: Serve, kubectl: Kubectl) -> None:
    serve(script(iter([[group()]]), iter([])))
    said = kubectl("groups", "watch", NAME, "-o", "yaml").stdout
    assert said.startswith("---\nat: ")
    assert "\nchanges:\n- Stable in generation 4\n" in said
