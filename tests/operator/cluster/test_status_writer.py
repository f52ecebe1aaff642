"""Writes of a status: none at rest, at once for a condition, otherwise one in an interval, always of the version that was read."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from typing_extensions import override

from rota_operator.cluster.api import Api
from rota_operator.cluster.queues import Key
from rota_operator.cluster.status_writer import (
    EXPIRY_INTERVAL_S,
    NUMBERS_INTERVAL_S,
    StatusWriter,
    Written,
    difference,
)
from rota_operator.spec.status import ConsumerGroupStatus
from rota_operator.status.status import read_status
from rota_service.event_log import EventLog
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run, status

KEY = Key("shop", "orders")


def ready(condition: str, message: str = "") -> Mapping[str, Any]:
    return {
        "type": "Ready", "status": condition, "reason": "NoMembers", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    }  # fmt: skip


class Log(EventLog):
    """Keeps warnings; an internal error fails the test."""

    def __init__(self) -> None:
        super().__init__(logging.getLogger("test"))
        self.warnings: list[str] = []

    @override
    def warning(self, message: str, event: str = "warning", **fields: str | float) -> None:
        self.warnings.append(message)

    @override
    def exception(self, error: Exception) -> None:
        raise AssertionError from error


def resource(version: str, held: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "orders", "resourceVersion": version}, "status": held}


def test_the_difference_is_the_smallest_merge_patch() -> None:
    was = {"a": 1, "gone": 2, "lag": {"total": 1, "max": 1, "seconds": 3}, "conditions": [1]}
    wanted = {"a": 1, "new": 3, "lag": {"total": 2, "max": 1}, "conditions": [1, 2]}
    assert difference(was, wanted) == {
        "gone": None, "new": 3, "lag": {"total": 2, "seconds": None}, "conditions": [1, 2],
    }  # fmt: skip
    assert difference(wanted, wanted) == {}


class Cluster:
    """A resource whose status is patched, with the API server's defaults and version check."""

    def __init__(self) -> None:
        self.version, self.status = 1, dict[str, Any]()
        self.wanted: Mapping[str, Any] = {}
        self.server = ApiServer(self.answer)
        self.log = Log()

    def answer(self, sent: Sent) -> Answer:
        if sent.method == "GET":
            return Answer(body=resource(str(self.version), self.status))
        if sent.body["metadata"]["resourceVersion"] != str(self.version):
            return status(409, "Conflict", "the object has been modified")
        self.version += 1
        self.status = {"phase": "", **self.status, **sent.body["status"]}
        return Answer(body=resource(str(self.version), self.status))

    @property
    def writes(self) -> list[Any]:
        return [each.body["status"] for each in self.server.sent if each.method == "PATCH"]


def play(cluster: Cluster, story: Callable[[StatusWriter], Any]) -> None:
    async def with_writer(api: Api) -> None:
        writer = StatusWriter(
            api,
            lambda key, former: read_status({"status": cluster.wanted}),
            lambda key, found: None,
            cluster.log,
        )
        writer.observed(KEY, resource(str(cluster.version), cluster.status))
        await story(writer)

    run(cluster.server, with_writer)


def test_at_rest_nothing_is_written_although_the_api_server_adds_defaults() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 2}

    async def story(writer: StatusWriter) -> None:
        for _ in range(3):
            writer.view_changed(KEY)
            await writer.update(KEY)
        writer.observed(KEY, resource(str(cluster.version), cluster.status))
        await writer.update(KEY)

    play(cluster, story)
    assert [each["members"] for each in cluster.writes] == [2]
    assert cluster.status["members"] == 2


def test_a_status_that_another_client_changed_is_written_again() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 2, "conditions": [ready("True")]}

    async def story(writer: StatusWriter) -> None:
        await writer.update(KEY)
        cluster.status["conditions"] = []
        cluster.version += 1
        writer.observed(KEY, resource(str(cluster.version), cluster.status))
        await writer.update(KEY)

    play(cluster, story)
    assert cluster.status["conditions"] == [ready("True")]
    assert len(cluster.writes) == 2


def test_numbers_wait_for_the_interval_and_a_condition_does_not() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 1, "conditions": [ready("False")]}

    async def story(writer: StatusWriter) -> None:
        await writer.update(KEY)
        cluster.wanted = {"members": 2, "conditions": [ready("False")]}
        writer.view_changed(KEY)
        await writer.update(KEY)
        assert len(cluster.writes) == 1
        cluster.wanted = {"members": 3, "conditions": [ready("True")]}
        writer.view_changed(KEY)
        await writer.update(KEY)

    play(cluster, story)
    assert len(cluster.writes) == 2
    assert (cluster.status["members"], cluster.status["conditions"]) == (3, [ready("True")])


def test_a_change_during_a_write_is_computed_after_it() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 1, "conditions": [ready("False")]}
    working, changing = cluster.answer, list[StatusWriter]()

    def answer(sent: Sent) -> Answer:
        if changing:
            cluster.wanted = {"members": 2, "conditions": [ready("True")]}
            changing.pop().view_changed(KEY)
        return working(sent)

    cluster.server = ApiServer(answer)

    async def story(writer: StatusWriter) -> None:
        changing.append(writer)
        await writer.update(KEY)
        assert cluster.status["members"] == 1
        await writer.update(KEY)

    play(cluster, story)
    assert cluster.status["members"] == 2


def test_numbers_are_computed_in_intervals_and_a_view_that_changes_at_once() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 1}

    async def story(writer: StatusWriter) -> None:
        await writer.update(KEY)
        cluster.wanted = {"members": 2, "conditions": [ready("True")]}
        writer.numbers_changed(KEY)
        await writer.update(KEY)
        assert cluster.status["members"] == 1
        writer.view_changed(KEY)
        await writer.update(KEY)

    play(cluster, story)
    assert cluster.status["members"] == 2


def test_numbers_alone_are_computed_too() -> None:
    known = Written({}, ConsumerGroupStatus(), "1", computed_s=10.0, is_dirty=False)
    assert not known.is_due(10.0 + NUMBERS_INTERVAL_S)
    assert known.is_due(10.0 + EXPIRY_INTERVAL_S)
    known.has_new_numbers = True
    assert not known.is_due(10.0 + NUMBERS_INTERVAL_S - 0.1)
    assert known.is_due(10.0 + NUMBERS_INTERVAL_S)


def test_a_write_of_an_outdated_version_is_decided_anew_on_the_newest() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 2}

    async def story(writer: StatusWriter) -> None:
        cluster.version = 5
        await writer.update(KEY)
        assert cluster.status == {}
        await writer.update(KEY)

    play(cluster, story)
    assert cluster.status["members"] == 2
    assert cluster.log.warnings == []


def test_a_version_that_was_read_before_the_last_write_does_not_hide_what_is_held_since() -> None:
    cluster = Cluster()
    cluster.version, cluster.status = 9, {"members": 1, "conditions": [ready("True")]}

    async def story(writer: StatusWriter) -> None:
        read = resource(str(cluster.version), cluster.status)
        cluster.wanted = {"members": 2, "conditions": [ready("False")]}
        await writer.update(KEY)
        cluster.wanted = {"members": 1, "conditions": [ready("True")]}
        writer.observed(KEY, read)
        await writer.update(KEY)

    play(cluster, story)
    assert cluster.status["conditions"] == [ready("True")]
    assert [each.method for each in cluster.server.sent] == ["PATCH", "PATCH"]


def test_versions_that_fall_when_a_store_is_restored_are_taken_over_after_a_conflict() -> None:
    cluster = Cluster()
    cluster.version = 100
    cluster.wanted = {"members": 1}

    async def story(writer: StatusWriter) -> None:
        await writer.update(KEY)
        cluster.version, cluster.status = 7, {}
        cluster.wanted = {"members": 2, "conditions": [ready("True")]}
        writer.observed(KEY, resource("7", {}))
        await writer.update(KEY)
        await writer.update(KEY)

    play(cluster, story)
    assert cluster.status["members"] == 2


def test_a_failed_write_is_reported_and_tried_again() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 2}
    answers = iter([status(500, "InternalError", "no quorum")])
    working = cluster.answer
    cluster.server = ApiServer(lambda sent: next(answers, None) or working(sent))

    async def story(writer: StatusWriter) -> None:
        await writer.update(KEY)
        assert cluster.status == {}
        await writer.update(KEY)

    play(cluster, story)
    assert cluster.status["members"] == 2
    assert ["no quorum" in each for each in cluster.log.warnings] == [True]


def test_a_resource_that_is_gone_is_forgotten() -> None:
    cluster = Cluster()
    cluster.wanted = {"members": 2}
    cluster.server = ApiServer(lambda sent: status(404, "NotFound", "not found"))

    async def story(writer: StatusWriter) -> None:
        await writer.update(KEY)
        await writer.update(KEY)

    play(cluster, story)
    assert len(cluster.server.sent) == 1
    assert cluster.log.warnings == []


@pytest.mark.parametrize("groups", [0, 3])
def test_all_statuses_are_updated_side_by_side(groups: int) -> None:
    server = ApiServer(lambda sent: Answer(body=resource("2", {"members": 1})))

    async def story(api: Api) -> None:
        seen: set[Key] = set()
        writer = StatusWriter(
            api,
            lambda key, former: read_status({"status": {"members": 1}}),
            lambda key, found: seen.add(key),
            Log(),
        )
        keys = {Key("shop", f"group-{number}") for number in range(groups)}
        for key in keys:
            writer.observed(key, resource("1", {}))
        running = asyncio.create_task(writer.run())
        while len(server.sent) < groups:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert seen == keys

    run(server, story)
