"""The operator shows its token to Rota's coordinators: with every call, and as the file has it now."""

import asyncio
from pathlib import Path

import pytest

from rota_operator.cluster.channels import Channels
from rota_operator.engines.coordinators import OnlyCoordinator
from rota_operator.engines.port import Unavailable
from rota_operator.engines.rota import RotaGroups, watch_group
from rota_operator.overview.description import Description
from rota_operator.overview.problems import NOT_AUTHORIZED, CoordinatorProblem
from tests.support.certificates import LOOPBACK, Authority
from tests.support.coordinator import QUICK, serving
from tests.support.token_reviews import serving_reviews

pytestmark = pytest.mark.process
WITHIN_S = 60
TOKENS = "operator plain:first-token,plain:second-token admin:*\n"
GRANTS = "system:serviceaccount:rota:operator service-account admin:*\n"


@pytest.mark.parametrize("has_tls", [True, False])
def test_calls_have_the_token_that_the_file_has_now(tmp_path: Path, has_tls: bool) -> None:
    token_file, tokens = tmp_path / "token", tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    flags = [*QUICK, f"--tokens-file={tokens}"]
    authority = Authority(tmp_path / "authority") if has_tls else None
    if authority is not None:
        issued = authority.issue("coordinator")
        flags += [f"--tls-cert={issued.certificate}", f"--tls-key={issued.key}"]

    async def body(address: str) -> None:
        pem = None if authority is None else authority.certificate.read_bytes()
        channels = Channels(lambda: pem, insecure=not has_tls, token_file=token_file)
        groups = RotaGroups(OnlyCoordinator(channels.get(address)))
        with pytest.raises(Unavailable, match="the call has no token"):
            await groups.committed("shop.orders", ())
        for token in ("first-token\n", "second-token"):
            token_file.write_text(token)
            assert await groups.committed("shop.orders", ()) == {}
        token_file.write_text("wrong-token")
        with pytest.raises(Unavailable, match="unknown token"):
            await groups.committed("shop.orders", ())
        await channels.close()

    with serving(tmp_path, flags) as coordinator:
        asyncio.run(asyncio.wait_for(body(coordinator.address), WITHIN_S))


def problem_at(
    coordinator: str, pem: bytes, token_file: Path | None = None, name: str = "127.0.0.1"
) -> CoordinatorProblem:
    """Watch a group until the coordinator does not describe it, and return why."""

    async def body() -> CoordinatorProblem:
        problems: asyncio.Queue[CoordinatorProblem] = asyncio.Queue()
        channels = Channels(lambda: pem, insecure=not pem, token_file=token_file)
        channel = OnlyCoordinator(channels.get(coordinator.replace("127.0.0.1", name)))
        watching = asyncio.create_task(
            watch_group(
                channel, "shop.orders", lambda _: None, lambda _, problem: problems.put_nowait(problem)
            )
        )
        problem = await problems.get()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await channels.close()
        return problem

    return asyncio.run(asyncio.wait_for(body(), WITHIN_S))


def test_a_coordinator_that_refuses_the_operator_says_why(tmp_path: Path) -> None:
    token_file, tokens = tmp_path / "token", tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("reader plain:a-token consume:shop.*\n")
    with serving(tmp_path, [*QUICK, f"--tokens-file={tokens}"]) as coordinator:
        token_file.write_text("a-token")
        assert problem_at(coordinator.address, b"", token_file) == NOT_AUTHORIZED
        token_file.write_text("another")
        problem = problem_at(coordinator.address, b"", token_file)
        assert problem.is_refusal
        assert "unknown token" in problem.message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("expired", "its certificate is not trusted: certificate has expired"),
        ("another authority", "its certificate is not trusted: "),
        ("another name", "its certificate is not issued for the name of its address"),
        ("no TLS", "it has no TLS"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_said(tmp_path: Path, wrong: str, message: str) -> None:
    authority = Authority(tmp_path / "authority")
    days, names = (
        (-1 if wrong == "expired" else 2),
        (["DNS:elsewhere"] if wrong == "another name" else LOOPBACK),
    )
    issued = authority.issue("coordinator", names, days=days)
    trusted = Authority(tmp_path / "other") if wrong == "another authority" else authority
    flags = () if wrong == "no TLS" else (f"--tls-cert={issued.certificate}", f"--tls-key={issued.key}")
    with serving(tmp_path, [*QUICK, *flags]) as coordinator:
        problem = problem_at(coordinator.address, trusted.certificate.read_bytes())
    assert not problem.is_refusal
    assert problem.message.startswith(message), problem


def test_a_watch_goes_on_with_the_next_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is never unknown in between."""
    token_file, grants = tmp_path / "token", tmp_path / "grants"
    grants.touch(mode=0o600)
    grants.write_text(GRANTS)
    (tmp_path / "kubernetes").mkdir()
    with serving_reviews(tmp_path / "kubernetes") as reviews:
        for name, value in reviews.environment.items():
            monkeypatch.setenv(name, value)
        expiring = reviews.pod("rota", "operator-0", account="operator", expires_in_s=2)
        token_file.write_text(expiring)

        async def body(address: str) -> None:
            described: asyncio.Queue[Description] = asyncio.Queue()
            unavailable: list[str] = []
            channels = Channels(lambda: None, insecure=True, token_file=token_file)
            channel = OnlyCoordinator(channels.get(address))
            watching = asyncio.create_task(
                watch_group(
                    channel,
                    "shop.orders",
                    described.put_nowait,
                    lambda group_id, _: unavailable.append(group_id),
                )
            )
            await described.get()
            token_file.write_text(reviews.pod("rota", "operator-0", account="operator"))
            reviews.delete(expiring)
            await described.get()
            assert unavailable == []
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await channels.close()

        with serving(tmp_path, [*QUICK, *reviews.flags, f"--tokens-file={grants}"]) as coordinator:
            asyncio.run(asyncio.wait_for(body(coordinator.address), WITHIN_S))
