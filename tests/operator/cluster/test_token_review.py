"""A sidecar is the pod of its token, in the ConsumerGroup that the pod belongs to."""

import asyncio

import pytest

from rota_operator.cluster.errors import Unavailable
from rota_operator.cluster.token_review import PodGroup, SidecarAuthenticator, SidecarPorts
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.reconcile.observed import Object
from rota_service import token_review
from rota_service.pod_tokens import CACHE_S, POD_NAME, POD_UID, Pod
from rota_service.token_review import AuthenticationUnavailable, ReviewClocks, Unauthenticated

EXTRA = {POD_NAME: ["orders-0"], POD_UID: ["11-22"]}
USER = {"username": "system:serviceaccount:shop:default", "extra": EXTRA}


class Cluster:
    """Stands for the API server: the groups of pods, and which of its requests fails."""

    def __init__(self) -> None:
        self.groups = {"orders-0": PodGroup("shop/orders", "shop.orders")}
        self.fails = ""
        self.authenticator = SidecarAuthenticator(
            SidecarPorts(self._review, self._group_of), ReviewClocks(lambda: 500.0, lambda: 1.0)
        )

    async def _review(self, token: str, audiences: tuple[str, ...]) -> Object:
        self._fail("review")
        return {"authenticated": True, "audiences": list(audiences), "user": USER}

    async def _group_of(self, pod: Pod) -> PodGroup | None:
        self._fail("group_of")
        return self.groups.get(pod.name)

    def _fail(self, request: str) -> None:
        if self.fails == request:
            raise Unavailable("the API server cannot be reached")


def authenticate(cluster: Cluster) -> Principal:
    return asyncio.run(cluster.authenticator.authenticate("token"))


def test_a_sidecar_is_the_pod_of_its_token_in_the_group_of_the_pod() -> None:
    assert authenticate(Cluster()) == Principal(
        SidecarRef("shop", "orders-0"), "shop.orders", "11-22", "shop/orders", CACHE_S
    )


def test_a_pod_without_a_group_is_refused_by_name() -> None:
    cluster = Cluster()
    cluster.groups.clear()
    with pytest.raises(Unauthenticated, match="pod orders-0 of namespace shop does not belong"):
        authenticate(cluster)


@pytest.mark.parametrize("request_", ["review", "group_of"])
def test_a_new_sidecar_waits_while_the_api_server_is_away(
    request_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_review, "WAIT_S", 0.1)
    cluster = Cluster()
    cluster.fails = request_
    with pytest.raises(AuthenticationUnavailable, match="in time; retry"):
        authenticate(cluster)
