"""The operator shows its token to Rota's coordinators: with every call, and as the file has it now."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from rota_operator.cluster.channels import Channels
from rota_operator.engines.port import Unavailable
from rota_operator.engines.rota import RotaGroups, watch_group
from rota_operator.overview.description import Description
from tests.support.certificates import Authority
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
        groups = RotaGroups(channels.get(address))
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
            channel: grpc.aio.Channel = channels.get(address)
            watching = asyncio.create_task(
                watch_group(channel, "shop.orders", described.put_nowait, unavailable.append)
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
