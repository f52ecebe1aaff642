"""Each refusal is in the event log once, its repetitions with their count, and no flood of them fills it."""

from rota_coordinator.security.denials import DENIALS_MAX, PERIOD_S, TEXT_LENGTH_MAX, Denial, DenialLog

JOIN = Denial(
    "system:serviceaccount:shop:orders",
    "shop/orders-0",
    "",
    "JoinGroup",
    "bank.g",
    "GROUP_AUTHORIZATION_FAILED",
)


class Log:
    """The event log and the clock of a test."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.records: list[tuple[str, str, dict[str, str | float]]] = []
        self.denials = DenialLog(self._record, lambda: self.now_s)

    def _record(self, message: str, event: str = "warning", **fields: str | float) -> None:
        self.records.append((message, event, fields))


def test_a_refusal_is_recorded_with_its_fields() -> None:
    log = Log()
    log.denials.add(JOIN)
    assert log.records == [
        (
            "system:serviceaccount:shop:orders (pod shop/orders-0) was refused JoinGroup 'bank.g': GROUP_AUTHORIZATION_FAILED",
            "refused",
            {
                "principal": "system:serviceaccount:shop:orders",
                "pod": "shop/orders-0",
                "api": "JoinGroup",
                "resource": "bank.g",
                "error": "GROUP_AUTHORIZATION_FAILED",
                "count": 1,
            },
        )
    ]


def test_a_caller_that_is_not_known_is_recorded_by_its_address() -> None:
    log = Log()
    log.denials.add(Denial("", "", "ipv4:10.0.0.1", "", "", "the call has no token"))
    message, _, fields = log.records[0]
    assert message == "a call from ipv4:10.0.0.1 was refused: the call has no token"
    assert fields == {"address": "ipv4:10.0.0.1", "error": "the call has no token", "count": 1}


def test_repetitions_are_one_record_with_their_count() -> None:
    log = Log()
    for _ in range(5):
        log.denials.add(JOIN)
    log.denials.flush()
    assert len(log.records) == 1
    log.now_s += PERIOD_S
    log.denials.flush()
    log.denials.flush()
    assert [fields["count"] for _, _, fields in log.records] == [1, 4]


def test_a_refusal_in_the_next_period_is_recorded_at_once_with_those_before() -> None:
    log = Log()
    for _ in range(3):
        log.denials.add(JOIN)
    log.now_s += PERIOD_S
    log.denials.add(JOIN)
    assert [fields["count"] for _, _, fields in log.records] == [1, 3]


def test_different_refusals_are_bounded_and_the_rest_is_counted() -> None:
    log = Log()
    for number in range(DENIALS_MAX + 7):
        log.denials.add(JOIN._replace(resource=f"bank.{number}"))
    assert len(log.records) == DENIALS_MAX
    log.denials.flush()
    message, _, fields = log.records[-1]
    assert (message, fields["count"]) == ("7 further requests were refused", 7)
    log.now_s += PERIOD_S
    log.denials.flush()
    log.denials.add(JOIN)
    assert log.records[-1][2]["resource"] == "bank.g"


def test_texts_are_bounded() -> None:
    log = Log()
    log.denials.add(JOIN._replace(resource="x" * 10_000))
    assert log.records[0][2]["resource"] == "x" * TEXT_LENGTH_MAX
