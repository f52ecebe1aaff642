"""Kerberos logins in threads, with a library that blocks, is missing, or holds an expired ticket, as a real one rarely does."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_sidecar.engines.kafka import gssapi, kerberos_login
from rota_sidecar.engines.kafka.gssapi import GssFailure, Identity, LibraryMissing
from rota_sidecar.engines.kafka.kerberos import KDC_UNREACHABLE, TICKET_EXPIRED, Login
from rota_sidecar.engines.kafka.kerberos_login import KerberosConversation
from rota_sidecar.engines.kafka.keytab import VERSION
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.port import Refused, Unreachable
from tests.sidecar.engines.kafka.test_keytab import entry

CACHED = Login("", None, "kafka", Address("broker-1", 9092))
WITHIN_S = 60


class Library:
    """Contexts whose first step waits for `answers`, and then fails with the next one of `failures` or sends a token."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.answers = threading.Event()
        self.answers.set()
        self.failures: list[GssFailure] = []
        self.closed = threading.Semaphore(0)

    def context(self, identity: Identity, service: str, host: str) -> "Context":
        return Context(self)


class Context:
    def __init__(self, library: Library) -> None:
        self._library = library
        self.established = False
        self.mutual = False

    def step(self, token: bytes) -> bytes:
        self._library.asked.release()
        assert self._library.answers.wait(WITHIN_S)
        if self._library.failures:
            raise self._library.failures.pop(0)
        return b"request"

    def unwrap(self, message: bytes) -> bytes:
        raise NotImplementedError

    def wrap(self, content: bytes) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        self._library.closed.release()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """A library that answers at the latest at the end, so that no thread is left behind."""
    fake = Library()
    monkeypatch.setattr(gssapi, "Context", fake.context)
    monkeypatch.setattr(kerberos_login, "_logins", threading.BoundedSemaphore(kerberos_login.LOGINS_MAX))
    yield fake
    fake.answers.set()


def first(login: Login = CACHED) -> bytes | None:
    """The first message of a login."""

    async def begin() -> bytes | None:
        conversation = KerberosConversation(login)
        try:
            return await conversation.next(None)
        finally:
            conversation.close()

    return asyncio.run(begin())


def failure(code: int, text: str = "any") -> GssFailure:
    return GssFailure(0xD0000, code, text)


def test_a_login_that_waits_for_the_kdc_holds_neither_the_event_loop_nor_its_caller(library: Library) -> None:
    library.answers.clear()

    async def give_up() -> None:
        conversation = KerberosConversation(CACHED)
        waiting = asyncio.create_task(conversation.next(None))
        assert await asyncio.to_thread(library.asked.acquire, timeout=WITHIN_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        conversation.close()

    asyncio.run(give_up())
    assert not library.closed.acquire(blocking=False), "the library still works with the context"
    library.answers.set()
    assert library.closed.acquire(timeout=WITHIN_S)


def test_logins_that_wait_are_limited(library: Library) -> None:
    library.answers.clear()

    async def begin_many() -> None:
        waiting = [KerberosConversation(CACHED) for _ in range(kerberos_login.LOGINS_MAX)]
        with pytest.raises(Unreachable, match="32 Kerberos logins wait for the KDC already; retry when some"):
            KerberosConversation(CACHED)
        for each in waiting:
            each.close()

    asyncio.run(begin_many())


def test_a_missing_library_is_refused_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(identity: Identity, service: str, host: str) -> Context:
        raise LibraryMissing("libgssapi_krb5.so.2: cannot open shared object file")

    monkeypatch.setattr(gssapi, "Context", load)
    with pytest.raises(
        Refused, match=r"cannot open shared object file\); install Debian's package libgssapi-krb5-2"
    ):
        first()


@pytest.fixture
def keytab(tmp_path: Path) -> Path:
    file = tmp_path / "keytab"
    file.write_bytes(VERSION + entry("ROTA.TEST", "rota"))
    return file


def test_an_expired_ticket_of_a_keytab_makes_way_for_a_new_one(library: Library, keytab: Path) -> None:
    library.failures = [failure(TICKET_EXPIRED)]
    assert first(CACHED._replace(keytab=keytab)) == b"request"


def test_a_ticket_that_cannot_be_renewed_is_reported_with_the_reason(library: Library, keytab: Path) -> None:
    library.failures = [failure(TICKET_EXPIRED), failure(KDC_UNREACHABLE, "Cannot contact any KDC")]
    with pytest.raises(Unreachable, match="Cannot contact any KDC"):
        first(CACHED._replace(keytab=keytab))


def test_an_expired_ticket_of_a_credential_cache_is_left_to_kinit(library: Library) -> None:
    library.failures = [failure(TICKET_EXPIRED, "Ticket expired")]
    with pytest.raises(Unreachable, match=r"\(Ticket expired\); run kinit, or give a keytab"):
        first()


def test_a_rejection_is_retried_if_a_login_was_accepted_before(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kerberos_login, "_accepted", set())
    conversation = KerberosConversation(CACHED)
    try:
        assert isinstance(conversation.reject(CACHED.address), Refused)
        conversation.accept()
        assert isinstance(conversation.reject(CACHED.address), Unreachable)
    finally:
        conversation.close()
