"""`kubectl rota groups reset` requests a reset once, follows the operator to its end, and prints the plan that was executed."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rota_cli.clusters.kubernetes.resets import ATTEMPTS_MAX
from tests.cli.kubectl.api_server import Answer, Sent, Watch, refusal
from tests.cli.kubectl.conftest import Kubectl, Serve
from tests.cli.kubectl.resources import NAME, PATH, STATUS, group, not_found

RESET = ("groups", "reset", NAME)
HEADER = "topic,partition,oldOffset,newOffset,oldTime,newTime,remark\n"
PLAN = f"{HEADER}orders,0,40,0,2026-11-26T05:00:00Z,,\norders,1,,7,,,9 is out of range; using the log end\n"
DENIED = 'forbidden: User "alice" cannot {} resource'
Record = dict[str, Any]


class Operator:
    """An API server with one ConsumerGroup, whose status goes through these phases once a reset is requested."""

    def __init__(self, *phases: Record, earlier: Record | None = None, reset: Record | None = None) -> None:
        self.phases = phases
        self.earlier = earlier
        self.reset = reset
        # The requests of resets, as they were merged.
        self.requested: list[Record] = []
        self.conflicts = 0
        self.config_maps: dict[str, Record] = {"plan": {"part": "1/1", "planHash": "h", "plan.csv": PLAN}}
        self.refused: dict[str, Answer] = {}
        self.events: list[Record] = []
        self.is_deleted = False
        self.version = 100

    def __call__(self, sent: Sent) -> Answer | Watch:
        kind = sent.path.split("/")[-2 if sent.path.endswith(NAME) or "configmaps/" in sent.path else -1]
        verb = "watch" if sent.is_watch else sent.method
        if f"{verb} {kind}" in self.refused:
            return self.refused[f"{verb} {kind}"]
        if kind == "configmaps":
            data = self.config_maps.get(sent.path.rpartition("/")[2])
            return not_found(sent) if data is None else Answer(200, {"data": data})
        if kind == "events":
            return Answer(200, {"items": self.events, "metadata": {}})
        if sent.method == "PATCH":
            return self.patched(sent.body)
        if sent.is_watch:
            return Watch([self.changed(each) for each in self.phases])
        if sent.path == f"{PATH}/{NAME}":
            return Answer(200, self.resource(self.earlier))
        return Answer(200, {"metadata": {"resourceVersion": "200"}, "items": [self.resource(self.earlier)]})

    def patched(self, body: Record) -> Answer:
        if self.conflicts:
            self.conflicts -= 1
            self.version += 1
            return refusal(409, "the object has been modified")
        assert body["metadata"] == {"resourceVersion": str(self.version)}
        merged = body["spec"]["offsets"]["reset"]
        self.requested.append(merged)
        self.reset = without_nulls(merged)
        return Answer(200, self.resource(self.earlier))

    def changed(self, record: Record) -> Record:
        if self.is_deleted:
            return {"type": "DELETED", "object": self.resource(record)}
        return {"type": "MODIFIED", "object": self.resource(record)}

    def resource(self, record: Record | None) -> Record:
        """The ConsumerGroup with a record, which is about the requested reset unless it names another one."""
        status = dict(STATUS)
        if record is not None:
            own = {"requestId": self.reset["requestId"], "dryRun": self.reset["dryRun"]} if self.reset else {}
            status["offsetReset"] = {**own, **record}
        offsets = {} if self.reset is None else {"reset": self.reset}
        return group(status, version=str(self.version), offsets={"initialOffset": "latest", **offsets})


def without_nulls(value: Record) -> Record:
    return {
        name: without_nulls(each) if isinstance(each, dict) else each
        for name, each in value.items()
        if each is not None
    }


def phase(name: str, **fields: Any) -> Record:  # noqa: ANN401  any field of the record
    return {"phase": name, **fields}


DONE = {
    "planConfigMap": "plan",
    "planHash": "h",
    "partitions": 2,
    "skippedRecords": 0,
    "repeatedRecords": 40,
}
PLANNED = phase("Planned", **DONE)
EXECUTION = (
    phase("Suspending", **DONE),
    phase("Committing", **DONE),
    phase("Verifying", **DONE),
    phase("Resuming", **DONE),
    phase("Completed", undoConfigMap="undo", **DONE),
)


def executed(request_id: str, *, dry_run: bool = False) -> Record:
    return {"requestId": request_id, "dryRun": dry_run, "planHash": "h"}


def test_a_dry_run_prints_the_plan_and_the_command_that_executes_it(serve: Serve, kubectl: Kubectl) -> None:
    operator = Operator(PLANNED)
    serve(operator)
    done = kubectl(*RESET, "--to-earliest", "--dry-run")
    [request] = operator.requested
    assert request == {"requestId": request["requestId"], "dryRun": True, "to": {"earliest": True}}
    assert done.lines == [
        "TOPIC    PARTITION   OLD   NEW   CHANGE   OLD-TIME               NEW-TIME   REMARK",
        "orders           0    40     0      -40   2026-11-26T05:00:00Z   -          -",
        "orders           1     -     7        -   -                      -          9 is out of range; using the log end",
    ]
    first, waits, last = done.stderr.splitlines()
    assert first == f"dry run {request['requestId']} of shop/{NAME} is requested"
    assert waits == "waiting for the operator"
    assert last == (
        "dry run, nothing changed: 0 records skipped, 40 repeated; execute this plan with "
        f"`kubectl rota groups reset {NAME} -n shop --request-id {request['requestId']} --execute`"
    )


def test_an_execution_is_followed_through_its_phases(serve: Serve, kubectl: Kubectl) -> None:
    operator = Operator(*EXECUTION)
    server = serve(operator)
    done = kubectl(*RESET, "--to-earliest", "--topic", "orders", "--topic", "orders", "--execute")
    assert operator.requested[0]["topics"] == ["orders"]
    assert operator.requested[0]["dryRun"] is False
    assert done.code == 0
    assert done.stderr.splitlines()[1:] == [
        "waiting for the operator",
        "Suspending: the members stop reading",
        "Committing: the owners set the offsets of their partitions",
        "Verifying: the committed offsets are compared with the plan",
        "Resuming: the members read on",
        f"reset 2 offsets of shop/{NAME}: 0 records skipped, 40 repeated",
        f"undo it with `kubectl rota groups reset {NAME} -n shop --from-config-map undo --execute`",
    ]
    patch = next(each for each in server.sent if each.method == "PATCH")
    assert (patch.content_type, patch.query) == (
        "application/merge-patch+json",
        {"fieldManager": "kubectl-rota"},
    )


@pytest.mark.parametrize(
    ("flags", "to"),
    [
        (("--to-latest",), {"latest": True}),
        (("--to-offset", "12"), {"offset": 12}),
        (("--to-datetime", "2026-09-20T14:00:00+02:00"), {"datetime": "2026-09-20T12:00:00.000Z"}),
        (("--shift-by", "-5"), {"shiftBy": -5}),
        (("--by-duration", "1d"), {"byDuration": "PT86400S"}),
        (("--by-duration", "1500ms"), {"byDuration": "PT1.500S"}),
        (("--from-config-map", "undo"), {"fromConfigMap": "undo"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_target_is_the_field_of_the_resource(
    serve: Serve, kubectl: Kubectl, flags: Sequence[str], to: Record
) -> None:
    operator = Operator(PLANNED)
    serve(operator)
    assert kubectl(*RESET, *flags, "--dry-run").code == 0
    assert operator.requested[0]["to"] == to


def test_a_former_reset_is_replaced_as_a_whole(serve: Serve, kubectl: Kubectl) -> None:
    former = {"requestId": "a", "dryRun": False, "topics": ["orders"], "to": {"offset": 3}}
    operator = Operator(
        PLANNED,
        earlier=phase("Completed", requestId="a", dryRun=False, executed=[executed("a")]),
        reset=former,
    )
    serve(operator)
    assert kubectl(*RESET, "--to-earliest", "--dry-run").code == 0
    assert operator.requested[0]["to"] == {"offset": None, "earliest": True}
    assert operator.requested[0]["topics"] is None


def test_the_plan_of_a_dry_run_is_executed_by_its_request_id(serve: Serve, kubectl: Kubectl) -> None:
    former = {"requestId": "replay", "dryRun": True, "topics": ["orders"], "to": {"offset": 3}}
    acted = {"executed": [executed("replay", dry_run=True)]}
    operator = Operator(
        *EXECUTION, earlier={"requestId": "replay", "dryRun": True, **PLANNED, **acted}, reset=former
    )
    serve(operator)
    assert kubectl(*RESET, "--request-id", "replay", "--execute").code == 0
    assert without_nulls(operator.requested[0]) == {**former, "dryRun": False}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (phase("Planned", requestId="other", dryRun=True), "replay is not the last dry run of"),
        (phase("Rejected", requestId="replay", dryRun=True), "replay is not the last dry run of"),
        (
            phase("Completed", requestId="replay", dryRun=False, executed=[executed("replay")]),
            "was executed before: make a new dry run",
        ),
    ],
    ids=["another", "rejected", "executed"],
)
def test_a_plan_that_is_not_that_of_the_last_dry_run_is_not_executed(
    serve: Serve, kubectl: Kubectl, record: Record, said: str
) -> None:
    operator = Operator(earlier=record, reset={"requestId": "replay", "dryRun": True, "to": {"offset": 3}})
    serve(operator)
    done = kubectl(*RESET, "--request-id", "replay", "--execute")
    assert (done.code, said in done.error) == (1, True), done
    assert operator.requested == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "add --dry-run to write the plan, or --execute to execute it"),
        (("--execute",), "expected exactly one of --to-earliest, --to-latest, --to-offset"),
        (("--execute", "--to-earliest", "--to-latest"), "expected exactly one of"),
        (("--execute", "--to-datetime", "yesterday"), "--to-datetime yesterday: expected a time such as"),
        (("--execute", "--to-datetime", "2026-09-20T12:00:00"), "add a time zone"),
        (("--execute", "--by-duration", "soon"), "--by-duration soon: expected a duration"),
        (("--execute", "--from-config-map", "../other"), 'from-config-map "../other" is not a valid name'),
        (("--execute", "--to-earliest", "--topic", "orders:0"), "a reset in a cluster covers whole topics"),
        (("--execute", "--to-earliest", "--request-id", "a"), "--request-id executes the plan of a dry run"),
        (("--dry-run", "--request-id", "a"), "--request-id executes the plan of a dry run"),
        (("--execute", "--to-offset", "-1"), "Invalid value for '--to-offset'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_refused_before_anything_is_asked(
    serve: Serve, kubectl: Kubectl, flags: Sequence[str], said: str
) -> None:
    server = serve(Operator())
    done = kubectl(*RESET, *flags)
    assert (done.code, said in done.error) == (2, True), done
    assert server.sent == []


@pytest.mark.parametrize(
    ("earlier", "said"),
    [
        (phase("Committing"), "reset a of shop/orders-enricher is Committing: follow it with"),
        (phase("Waiting", message="no member"), "reset a of shop/orders-enricher has not begun (no member):"),
        (None, "reset a of shop/orders-enricher has not begun: follow it with"),
    ],
    ids=["active", "waiting", "unseen"],
)
def test_two_resets_at_once_are_refused(
    serve: Serve, kubectl: Kubectl, earlier: Record | None, said: str
) -> None:
    operator = Operator(earlier=earlier, reset={"requestId": "a", "dryRun": False, "to": {"earliest": True}})
    serve(operator)
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert (done.code, said in done.error) == (1, True), done
    assert operator.requested == []


def test_a_reset_that_was_rejected_may_be_replaced(serve: Serve, kubectl: Kubectl) -> None:
    rejected = phase("Rejected", requestId="a", dryRun=False)
    operator = Operator(
        PLANNED, earlier=rejected, reset={"requestId": "a", "dryRun": False, "to": {"offset": 1}}
    )
    serve(operator)
    assert kubectl(*RESET, "--to-latest", "--dry-run").code == 0


@pytest.mark.parametrize("name", ["Rejected", "Failed"])
def test_a_reset_that_fails_ends_with_its_message(serve: Serve, kubectl: Kubectl, name: str) -> None:
    operator = Operator(phase(name, message="orders[3] is not set"))
    serve(operator)
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        f"rota: reset {operator.requested[0]['requestId']} of shop/{NAME} is {name}: orders[3] is not set"
    )


def test_a_status_that_is_written_meanwhile_is_no_conflict(serve: Serve, kubectl: Kubectl) -> None:
    operator = Operator(PLANNED)
    operator.conflicts = ATTEMPTS_MAX - 1
    serve(operator)
    assert kubectl(*RESET, "--to-latest", "--dry-run").code == 0


def replacing(operator: Operator) -> Callable[[Sent], Answer | Watch]:
    """Return the operator's answers, where another caller replaces the reset with each write."""

    def answer(sent: Sent) -> Answer | Watch:
        answered = operator(sent)
        if sent.method == "PATCH":
            operator.reset = {"requestId": "b", "dryRun": False, "to": {"offset": 1}}
        return answered

    return answer


def test_another_reset_that_is_requested_meanwhile_is_not_replaced(serve: Serve, kubectl: Kubectl) -> None:
    operator = Operator()
    operator.conflicts = 1

    serve(replacing(operator))
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert "was changed meanwhile: run the command again" in done.error
    assert operator.requested == []


def test_a_reset_that_is_replaced_before_it_begins_has_changed_nothing(
    serve: Serve, kubectl: Kubectl
) -> None:
    operator = Operator(phase("Waiting", requestId="b"))

    serve(replacing(operator))
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert done.code == 1
    assert "was replaced before reset" in done.stderr.splitlines()[-1]


def test_a_group_that_is_deleted_meanwhile_is_not_found(serve: Serve, kubectl: Kubectl) -> None:
    operator = Operator(phase("Committing"))
    operator.is_deleted = True
    serve(operator)
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert done.code == 4
    assert "rota: shop/orders-enricher was deleted before reset" in done.stderr


def test_ctrl_c_leaves_the_reset_going(
    serve: Serve, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rota_cli.commands.kubectl.reset.wait_s", interrupt)
    operator = Operator()
    serve(operator)
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert (done.code, len(operator.requested)) == (130, 1)
    assert done.stderr.splitlines()[-1] == (
        f"rota: reset {operator.requested[0]['requestId']} of shop/{NAME} goes on in the cluster: follow it with "
        f"`kubectl rota groups watch {NAME} -n shop`"
    )


def test_warnings_that_come_meanwhile_are_printed_once(serve: Serve, kubectl: Kubectl) -> None:
    def warning(reason: str, message: str) -> Record:
        return {"type": "Warning", "reason": reason, "message": message, "involvedObject": {"uid": "u-1"}}

    operator = Operator(*EXECUTION)
    operator.events = [warning("Old", "before")]

    def answer(sent: Sent) -> Answer | Watch:
        if sent.method == "PATCH":
            operator.events += [warning("MemberStuck", "orders-1"), warning("OffsetResetFailed", "status")]
        return operator(sent)

    serve(answer)
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert [each for each in done.stderr.splitlines() if "Old" in each or "Stuck" in each] == [
        "MemberStuck: orders-1"
    ]
    assert "OffsetResetFailed" not in done.stderr


def denying(verb: str, kind: str) -> Callable[[Operator], None]:
    def deny(operator: Operator) -> None:
        operator.refused[f"{verb} {kind}"] = refusal(403, DENIED.format(verb.lower()))

    return deny


@pytest.mark.parametrize(
    "spoil",
    [
        denying("GET", "configmaps"),
        lambda operator: operator.config_maps.clear(),
        lambda operator: operator.config_maps["plan"].update({"planHash": "edited"}),
        lambda operator: operator.config_maps["plan"].update({"part": "2/2"}),
        lambda operator: operator.config_maps["plan"].update({"plan.csv": f"{HEADER}orders,x,,,,,\n"}),
        lambda operator: operator.config_maps["plan"].update({"part": "1/2"}),
    ],
    ids=["denied", "deleted", "edited", "second", "text", "incomplete"],
)
def test_a_plan_that_cannot_be_read_does_not_undo_the_reset(
    serve: Serve, kubectl: Kubectl, spoil: Callable[[Operator], None]
) -> None:
    operator = Operator(*EXECUTION)
    spoil(operator)
    serve(operator)
    done = kubectl(*RESET, "--to-latest", "--execute", "-o", "json")
    assert done.data["partitions"] is None
    assert "the plan is unknown: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plan_in_several_config_maps_is_one_list_for_programs(serve: Serve, kubectl: Kubectl) -> None:
    operator = Operator(*EXECUTION)
    operator.config_maps = {
        "plan": {"part": "1/2", "planHash": "h", "plan.csv": PLAN},
        "plan-2": {"part": "2/2", "planHash": "h", "plan.csv": f"{HEADER}orders,2,5,0,,,\n"},
    }
    serve(operator)
    done = kubectl(*RESET, "--to-earliest", "--execute", "-o", "json").data
    assert (done["executed"], done["undo_config_map"], done["repeated_records"]) == (True, "undo", 40)
    assert [(each["partition"], each["old"], each["new"]) for each in done["partitions"]] == [
        (0, 40, 0), (1, None, 7), (2, 5, 0),
    ]  # fmt: skip


def test_without_the_right_to_watch_the_reset_goes_on_and_the_command_says_so(
    serve: Serve, kubectl: Kubectl
) -> None:
    operator = Operator(*EXECUTION)
    denying("watch", "consumergroups")(operator)
    serve(operator)
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert done.code == 1
    assert "goes on in the cluster and cannot be followed: alice may not watch" in done.stderr


def test_without_the_right_to_events_the_reset_is_followed(serve: Serve, kubectl: Kubectl) -> None:
    operator = Operator(*EXECUTION)
    denying("GET", "events")(operator)
    serve(operator)
    done = kubectl(*RESET, "--to-latest", "--execute")
    assert (done.code, done.stderr.count("Events are unknown")) == (0, 1)
