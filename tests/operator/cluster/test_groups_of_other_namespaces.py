"""The operator is an administrator of all groups, and lends that to no author of a ConsumerGroup: each call is for the group's namespace."""

import asyncio
from pathlib import Path

import pytest

import rota
from rota_operator.cluster.channels import Channels
from rota_operator.cluster.coordinators import FollowedCoordinator
from rota_operator.engines.admin import alter_offsets, commit_initial_offsets, delete_group
from rota_operator.engines.port import Unavailable
from rota_operator.engines.rota import RotaGroups, watch_group
from rota_operator.overview.assignment import Partition
from rota_operator.overview.problems import NOT_AUTHORIZED, CoordinatorProblem
from tests.support.coordinator import QUICK, serving
from tests.support.token_reviews import serving_reviews

pytestmark = pytest.mark.process
WITHIN_S = 60
GROUP = TOPIC = "shop.orders"
ORDERS = Partition(TOPIC, 0)
GRANTS = """\
system:serviceaccount:rota:operator  service-account  admin:* consume:*
system:serviceaccount:legacy:old     service-account  shop.orders
"""


async def problem_of(coordinator: FollowedCoordinator) -> CoordinatorProblem | None:
    """Return why the group cannot be watched; None: it can."""
    outcome: asyncio.Queue[CoordinatorProblem | None] = asyncio.Queue()
    watching = asyncio.create_task(
        watch_group(
            coordinator,
            GROUP,
            lambda _: outcome.put_nowait(None),
            lambda _, problem: outcome.put_nowait(problem),
        )
    )
    found = await outcome.get()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return found


def test_a_consumer_group_reads_resets_and_deletes_no_group_of_another_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_file, grants = tmp_path / "token", tmp_path / "grants"
    grants.touch(mode=0o600)
    grants.write_text(GRANTS)
    (tmp_path / "kubernetes").mkdir()

    async def story(address: str) -> None:
        channels = Channels(lambda: None, insecure=True, token_file=token_file)

        def coordinator_for(namespace: str) -> FollowedCoordinator:
            return FollowedCoordinator(channels, address, GROUP, namespace, lambda: None)

        own, foreign, granted = map(coordinator_for, ("shop", "bank", "legacy"))
        await commit_initial_offsets(own, GROUP, {ORDERS: 7})
        assert await problem_of(foreign) == NOT_AUTHORIZED
        for denied in (
            RotaGroups(foreign).committed(GROUP, ()),
            commit_initial_offsets(foreign, GROUP, {ORDERS: 0}),
            alter_offsets(foreign, GROUP, {ORDERS: 0}),
            delete_group(foreign, GROUP),
            foreign.find(),
        ):
            with pytest.raises(Unavailable, match="GROUP_AUTHORIZATION_FAILED"):
                await denied
        for each in (own, granted):
            assert await RotaGroups(each).committed(GROUP, ()) == {ORDERS: 7}
            assert await problem_of(each) is None
        await delete_group(own, GROUP)
        assert await RotaGroups(granted).committed(GROUP, ()) == {}
        await channels.close()

    with serving_reviews(tmp_path / "kubernetes") as reviews:
        for name, value in reviews.environment.items():
            monkeypatch.setenv(name, value)
        token_file.write_text(reviews.pod("rota", "operator-0", account="operator"))
        owner_file = tmp_path / "owner"
        owner_file.write_text(reviews.pod("shop", "orders-0"))
        monkeypatch.setenv("ROTA_TOKEN_FILE", str(owner_file))
        with serving(tmp_path, [*QUICK, *reviews.flags, f"--tokens-file={grants}"]) as coordinator:
            rota.create_topics(f"rota://{coordinator.address}", {TOPIC: 1})
            asyncio.run(asyncio.wait_for(story(coordinator.address), WITHIN_S))
