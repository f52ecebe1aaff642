"""The current token: one request for all connections, renewed while the old one is used, and failures that heal."""

import threading
from collections.abc import Callable

import pytest
from typing_extensions import override

from rota_service.oauth_provider import Clocks, TokenProvider
from rota_service.oauth_tokens import RETRY_S, NoToken, Token
from tests.support.processes import wait_for

LIFETIME_S = 100.0
WITHIN_S = 60


class Source:
    """Counts its tokens; `fails` makes it fail."""

    def __init__(self, *, is_local: bool = False) -> None:
        self.is_local = is_local
        self.count = 0
        self.asked = 0
        self.fails: NoToken | None = None
        self.answers = threading.Event()
        self.answers.set()

    def obtain(self, wall_s: float) -> Token:
        self.asked += 1
        self.answers.wait(WITHIN_S)
        if self.fails is not None:
            raise self.fails
        self.count += 1
        return Token(f"token-{self.count}", "orders", LIFETIME_S)

    @override
    def __str__(self) -> str:
        return "the source"


class Clock:
    """Moved by the test."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Fixture:
    """A provider with its source, clock and warnings."""

    def __init__(self, *, is_local: bool = False) -> None:
        self.source, self.clock = Source(is_local=is_local), Clock()
        self.warnings: list[str] = []
        self.provider = TokenProvider(self.source, Clocks(lambda: 0.0, self.clock), self.warnings.append)


@pytest.fixture
def one() -> Fixture:
    return Fixture()


def value(ask: Callable[[], Token]) -> str:
    return ask().value


def test_all_connections_get_one_token_with_its_remaining_life(one: Fixture) -> None:
    assert value(one.provider.token) == "token-1"
    one.clock.now_s += 79
    assert one.provider.token() == Token("token-1", "orders", 21)
    assert one.provider.renewed() == Token("token-1", "orders", 21)
    assert one.source.asked == 1


def test_connections_that_come_at_once_ask_once(one: Fixture) -> None:
    one.source.answers.clear()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(value(one.provider.token))) for _ in range(8)]
    for each in threads:
        each.start()
    one.source.answers.set()
    for each in threads:
        each.join(WITHIN_S)
    assert found == ["token-1"] * 8
    assert one.source.asked == 1


def test_a_login_does_not_wait_for_the_renewal(one: Fixture) -> None:
    assert value(one.provider.token) == "token-1"
    one.clock.now_s += 80
    one.source.answers.clear()
    assert value(one.provider.token) == "token-1"
    one.source.answers.set()
    wait_for("the renewal", lambda: value(one.provider.token) == "token-2", within_s=WITHIN_S)


def test_a_reauthentication_waits_for_the_new_token(one: Fixture) -> None:
    assert value(one.provider.token) == "token-1"
    one.clock.now_s += 80
    assert value(one.provider.renewed) == "token-2"


def test_a_failed_renewal_is_said_once_and_the_old_token_used_until_it_expires(one: Fixture) -> None:
    assert value(one.provider.token) == "token-1"
    one.source.fails = NoToken("the source is down; start it", may_heal=True)
    one.clock.now_s += 80
    for _ in range(3):
        assert value(one.provider.renewed) == "token-1"
    # A pause lies between two attempts.
    assert one.source.asked == 2
    one.clock.now_s += RETRY_S
    assert value(one.provider.renewed) == "token-1"
    assert one.source.asked == 3
    assert one.warnings == [
        "the token for Kafka cannot be renewed, and is valid for 20 s more: the source is down; start it"
    ]
    one.clock.now_s += 20
    with pytest.raises(NoToken, match="the source is down; start it") as failed:
        one.provider.token()
    assert failed.value.may_heal
    one.source.fails = None
    one.clock.now_s += RETRY_S
    assert value(one.provider.token) == "token-2"


def test_without_a_token_a_failure_is_repeated_without_asking_again_at_once(one: Fixture) -> None:
    one.source.fails = NoToken("the client is not known; check it", may_heal=False)
    for _ in range(3):
        with pytest.raises(NoToken, match="the client is not known") as failed:
            one.provider.token()
        assert not failed.value.may_heal
    assert one.source.asked == 1
    assert one.warnings == []


def test_a_local_source_is_asked_at_each_login(one: Fixture) -> None:
    local = Fixture(is_local=True)
    assert [value(local.provider.token), value(local.provider.renewed)] == ["token-1", "token-2"]
    local.source.fails = NoToken("the file is empty; write it", may_heal=True)
    assert value(local.provider.token) == "token-2"
    assert value(local.provider.renewed) == "token-2"
    local.clock.now_s += LIFETIME_S
    with pytest.raises(NoToken, match="the file is empty"):
        local.provider.token()
    local.source.fails = None
    assert value(local.provider.token) == "token-3"


def test_a_rejected_token_is_not_used_again(one: Fixture) -> None:
    token = one.provider.token()
    assert one.provider.reject(token.value) is False
    assert value(one.provider.token) == "token-2"


def test_after_an_accepted_token_a_rejected_one_may_be_out_of_date(one: Fixture) -> None:
    token = one.provider.token()
    one.provider.accept()
    assert one.provider.reject(token.value) is True
    assert value(one.provider.token) == "token-2"
    # A rejection of the former token does not concern the next one.
    one.provider.reject(token.value)
    assert value(one.provider.token) == "token-2"


def test_the_source_is_asked_with_pauses_while_brokers_reject_its_tokens(one: Fixture) -> None:
    one.provider.accept()
    for number in (1, 2):
        token = one.provider.token()
        assert token.value == f"token-{number}"
        assert one.provider.reject(token.value)
    for _ in range(3):
        with pytest.raises(NoToken, match="brokers reject the tokens of the source; see their logs"):
            one.provider.token()
    assert one.source.asked == 2
    one.clock.now_s += RETRY_S
    assert value(one.provider.token) == "token-3"
    one.provider.accept()
    one.provider.reject("token-3")
    assert value(one.provider.token) == "token-4"


def test_its_name_is_that_of_the_source(one: Fixture) -> None:
    assert str(one.provider) == "the source"
