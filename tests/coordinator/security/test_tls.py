"""The coordinator behind TLS: whom it lets connect, who it takes them for, and what it says of files that are wrong."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio
import pytest

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.coordinator.callers import call, channel, error_of, run
from tests.support.certificates import Authority, Issued
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.tree import python_path

pytestmark = pytest.mark.process
LOOK = admin.DescribeSlotsRequest()
TOKENS = """\
spiffe://rota/ns/shop/sa/orders certificate shop.*
by-common-name                  certificate bill.*
with-token                      plain:right-token *
"""


class Pki(NamedTuple):
    """An authority for servers, one for clients, and an untrusted one."""

    servers: Authority
    clients: Authority
    foreign: Authority


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    return Pki(*(Authority(folder / name) for name in Pki._fields))


@pytest.fixture(scope="module")
def server(pki: Pki) -> Issued:
    return pki.servers.issue("coordinator")


def tls_flags(server: Issued, *more: str) -> list[str]:
    return [*QUICK, f"--tls-cert={server.certificate}", f"--tls-key={server.key}", *more]


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, pki: Pki, server: Issued) -> Iterator[Coordinator]:
    folder = tmp_path_factory.mktemp("mutual")
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    flags = tls_flags(server, f"--tls-client-ca={pki.clients.certificate}", f"--tokens-file={tokens}")
    with serving(folder, flags) as coordinator:
        yield coordinator


async def outcome(
    address: str, *, trusts: Path | None = None, shows: Issued | None = None, token: str = ""
) -> grpc.StatusCode:
    """Return the outcome of a first call on a new connection."""
    async with channel(address, trusts=trusts, shows=shows) as over:
        try:
            await call(over, LOOK, token)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def test_only_who_shows_a_certificate_of_the_right_authority_gets_in(mutual: Coordinator, pki: Pki) -> None:
    right = pki.clients.issue("right", ["URI:spiffe://rota/ns/shop/sa/orders"])
    server_ca = pki.servers.certificate
    cases: Mapping[str, tuple[Path | None, Issued | None, grpc.StatusCode]] = {
        "right": (server_ca, right, grpc.StatusCode.OK),
        "in plain text": (None, None, grpc.StatusCode.UNAVAILABLE),
        "trusting another authority": (pki.foreign.certificate, right, grpc.StatusCode.UNAVAILABLE),
        "without a certificate": (server_ca, None, grpc.StatusCode.UNAVAILABLE),
        "of another authority": (server_ca, pki.foreign.issue("right"), grpc.StatusCode.UNAVAILABLE),
        "expired": (server_ca, pki.clients.issue("expired", days=-1), grpc.StatusCode.UNAVAILABLE),
        "right again": (server_ca, right, grpc.StatusCode.OK),
    }

    async def body() -> None:
        for case, (trusts, shows, code) in cases.items():
            assert (case, await outcome(mutual.address, trusts=trusts, shows=shows)) == (case, code)

    run(body())


def test_a_name_that_is_not_the_servers_is_refused_by_clients(tmp_path: Path, pki: Pki) -> None:
    other = pki.servers.issue("elsewhere", ["DNS:elsewhere.example"])
    running = Coordinator(tmp_path, tls_flags(other))
    running.start()

    async def body() -> None:
        code = await outcome(running.address, trusts=pki.servers.certificate)
        assert code is grpc.StatusCode.UNAVAILABLE

    run(body())
    running.stop()


def test_a_caller_is_who_its_certificate_says(mutual: Coordinator, pki: Pki) -> None:
    named = pki.clients.issue("named", ["DNS:pod-1.shop", "URI:spiffe://rota/ns/shop/sa/orders"])
    common = pki.clients.issue("by-common-name", [])
    # With alternative names the common one says nothing: authorities check it less.
    posing = pki.clients.issue("by-common-name", ["DNS:somebody.else"], file="posing")
    # A principal that is known by a token only.
    posing_too = pki.clients.issue("with-token", [])

    async def may(shows: Issued, group_id: str, token: str = "") -> bool:
        async with channel(mutual.address, trusts=pki.servers.certificate, shows=shows) as over:
            answer = await call(over, pb.FetchOffsetsRequest(group_id=group_id, all=True), token)
            return error_of(answer) == pb.NONE

    async def body() -> None:
        assert [await may(named, group) for group in ("shop.x", "bill.x")] == [True, False]
        assert [await may(common, group) for group in ("shop.x", "bill.x")] == [False, True]
        assert await may(posing, "bill.x", "right-token")
        for unknown in (posing, posing_too):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await may(unknown, "bill.x")
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await may(named, "shop.x", "wrong-token")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

    run(body())


def test_without_a_tokens_file_any_certificate_of_the_authority_may_everything(
    tmp_path: Path, pki: Pki, server: Issued
) -> None:
    running = Coordinator(tmp_path, tls_flags(server, f"--tls-client-ca={pki.clients.certificate}"))
    running.start()

    async def body() -> None:
        shows = pki.clients.issue("any")
        assert (
            await outcome(running.address, trusts=pki.servers.certificate, shows=shows) is grpc.StatusCode.OK
        )
        assert await outcome(running.address, trusts=pki.servers.certificate) is grpc.StatusCode.UNAVAILABLE

    run(body())
    running.stop()


def test_renewed_certificates_are_used_without_a_restart(tmp_path: Path, pki: Pki) -> None:
    """New connections get the new one, open ones go on; a key that does not fit yet changes nothing."""
    first = pki.servers.issue("first")
    used = Issued(tmp_path / "tls.crt", tmp_path / "tls.key")
    used.certificate.write_bytes(first.certificate.read_bytes())
    used.key.write_bytes(first.key.read_bytes())
    running = Coordinator(tmp_path, tls_flags(used))
    running.start()
    old, new = pki.servers.certificate, pki.foreign.certificate

    async def body() -> None:
        async with channel(running.address, trusts=old) as over:
            await call(over, LOOK)
            second = pki.foreign.issue("second")
            used.certificate.write_bytes(second.certificate.read_bytes())
            assert await outcome(running.address, trusts=old) is grpc.StatusCode.OK
            assert running.has_said("does not match the certificate")
            used.replace(second)
            assert await outcome(running.address, trusts=new) is grpc.StatusCode.OK
            assert await outcome(running.address, trusts=old) is grpc.StatusCode.UNAVAILABLE
            await call(over, LOOK)
            used.certificate.unlink()
            assert await outcome(running.address, trusts=new) is grpc.StatusCode.OK
            assert running.has_said("the previous certificate stays in use")

    run(body())
    assert running.stop() == 0


def start(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A start that is expected to fail."""
    command = [sys.executable, "-m", "rota_coordinator", "--listen=127.0.0.1:0", *arguments]
    return subprocess.run(
        command, env={"PYTHONPATH": python_path(), **variables}, capture_output=True, text=True, timeout=30
    )


def test_invalid_files_are_refused_with_one_message(tmp_path: Path, pki: Pki, server: Issued) -> None:
    other = pki.servers.issue("other")
    rubbish, broken, empty = (tmp_path / name for name in ("rubbish", "broken", "empty"))
    rubbish.write_bytes(b"\0\xff" * 100)
    broken.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    empty.touch()
    locked = pki.servers.lock(other, "passphrase")
    cases = {
        "No such file": ("--tls-cert=none.pem", f"--tls-key={server.key}"),
        "is not a PEM file": (f"--tls-cert={rubbish}", f"--tls-key={server.key}"),
        "contain no readable certificate and key": (f"--tls-cert={broken}", f"--tls-key={server.key}"),
        "does not match the certificate in": (f"--tls-cert={server.certificate}", f"--tls-key={other.key}"),
        "is encrypted": (f"--tls-cert={other.certificate}", f"--tls-key={locked}"),
        "--tls-key is missing": (f"--tls-cert={server.certificate}",),
        "requires --tls-cert": (f"--tls-client-ca={pki.clients.certificate}",),
        "contains no readable certificate": (*tls_flags(server), f"--tls-client-ca={broken}"),
        "the file has no principals": (f"--tokens-file={empty}",),
    }
    for message, arguments in cases.items():
        done = start(f"--store=sqlite:{tmp_path}/c.db", *arguments)
        assert done.returncode == 1
        assert message in done.stderr.splitlines()[-1], (arguments, done.stderr)
        assert "Traceback" not in done.stderr


def test_outside_loopback_tls_and_known_callers_are_required(
    tmp_path: Path, pki: Pki, server: Issued
) -> None:
    everywhere = ("--listen=0.0.0.0:0", f"--store=sqlite:{tmp_path}/c.db")
    tls = tls_flags(server)
    for message, arguments in {
        "add --tls-cert and --tls-key": (),
        "add --token-review, --tokens-file or --tls-client-ca": tls,
    }.items():
        done = start(*everywhere, *arguments)
        assert (done.returncode, message in done.stderr) == (1, True)
    done = start(*everywhere, f"--tokens-file={tmp_path}/none")
    assert "add --tls-cert and --tls-key" in done.stderr, "a token in plain text is everybody's"
    allowed = ([*tls, f"--tls-client-ca={pki.clients.certificate}"], [*tls, "--insecure"], ["--insecure"])
    for number, flags in enumerate(allowed):
        running = Coordinator(tmp_path, [*QUICK, *flags, "--listen=0.0.0.0:0"], name=f"allowed-{number}")
        running.start()
        assert running.stop() == 0


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://rota:canary@localhost/rota",
        "postgresql://localhost/rota?user=rota&password=canary",
        "postgres://:canary@[::1/rota",
    ],
)
def test_a_password_in_an_argument_is_refused_and_not_repeated(store: str) -> None:
    done = start("--store", store)
    assert done.returncode == 1
    assert "arguments are visible to every user of this machine" in done.stderr
    assert "canary" not in done.stderr
