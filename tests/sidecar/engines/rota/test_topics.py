"""Topics as the embedded log has them, asked for as the sidecar does."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.rota.connection import Credentials
from rota_sidecar.engines.rota.topics import RotaTopics
from tests.support.coordinator import QUICK, Coordinator, serving

pytestmark = pytest.mark.process
WITHIN_S = 60
NOBODY = "127.0.0.1:1"
TOKENS = """\
few plain:few-of-them shop.* consume:shop.*
"""


def described(
    addresses: Sequence[str], names: Collection[str] | None, credentials: Credentials | None = None
) -> Mapping[str, Topic]:
    async def ask() -> Mapping[str, Topic]:
        topics = RotaTopics(addresses, credentials or Credentials())
        try:
            return await topics.describe(names, WITHIN_S)
        finally:
            await topics.close()

    return asyncio.run(ask())


def test_what_exists_is_described_wherever_somebody_answers(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        coordinator.make_topic("orders", 12)
        coordinator.make_topic("bills", 1)
        known = [NOBODY, f"rota://{coordinator.address}"]
        found = described(known, ["orders", "missing"])
        assert {name: topic.partitions for name, topic in found.items()} == {"orders": 12}
        assert len(found["orders"].topic_id) == 16
        everything = described(known, None)
        assert {name: topic.partitions for name, topic in everything.items()} == {"orders": 12, "bills": 1}
        assert described([NOBODY], []) == {}, "nobody needs to be asked about nothing"
    with pytest.raises(Unreachable, match=f"{NOBODY} cannot be reached.*; {coordinator.address} cannot be"):
        described(known, None)


def test_a_server_without_a_log_says_what_to_do(tmp_path: Path) -> None:
    with (
        serving(tmp_path, [*QUICK, "--no-log"]) as coordinator,
        pytest.raises(
            Refused, match=f"^{coordinator.address} has no embedded log; start the coordinator with"
        ),
    ):
        described([coordinator.address], ["orders"])


def test_topics_of_others_are_not_seen_and_refused_by_name(tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    for file in (tokens, token):
        file.touch(mode=0o600)
    tokens.write_text(TOKENS)
    plain = Coordinator(tmp_path, name="before")
    plain.start()
    plain.make_topic("shop.orders")
    plain.make_topic("bank")
    plain.stop()
    token.write_text("few-of-them")
    shown = Credentials(token_file=token)
    with serving(tmp_path, [*QUICK, f"--tokens-file={tokens}"]) as coordinator:
        assert set(described([coordinator.address], None, shown)) == {"shop.orders"}
        with pytest.raises(
            Refused, match=r"not authorized to describe topic bank .TOPIC_AUTHORIZATION_FAILED"
        ):
            described([coordinator.address], ["shop.orders", "bank"], shown)
        with pytest.raises(Refused, match="cannot authenticate this client"):
            described([coordinator.address], None)
