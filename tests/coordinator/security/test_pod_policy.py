"""A namespace owns its groups, topics and transactional ids; all else is granted to service accounts in the tokens file."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from typing_extensions import override

from rota_coordinator.core.quotas import Quota
from rota_coordinator.security.authenticator import Peer, PodAuthenticator, Principal
from rota_coordinator.security.policy import Action, PodPolicy, TopicAction
from rota_coordinator.security.principals import Principals, parse
from rota_coordinator.security.service_accounts import user_of
from rota_service.pod_tokens import POD_NAME, POD_UID, Pod
from rota_service.token_review import ReviewClocks, ReviewPorts, TokenReviewer, Unauthenticated

FILE = """\
system:serviceaccount:rota:operator  service-account admin:* consume:*
system:serviceaccount:shop:orders    service-account legacy admin:shop.* quota:members=7
system:serviceaccounts:shop          service-account produce:orders quota:groups=5,members=6
system:serviceaccounts               service-account consume:public-* quota:groups=4,topics=3
system:serviceaccount:bank:teller    plain:static-token shop.*
system:serviceaccounts:bank          certificate shop.*
robot                                plain:robot-token read:shop.*
"""
KNOWN = parse(FILE, "tokens")
POLICY = PodPolicy(KNOWN.grants_of, KNOWN.grants_of_pods, KNOWN.grants_in)


def pod(namespace: str, account: str) -> Principal:
    found = Pod(namespace, "p", "uid", account)
    return Principal(user_of(found), found)


ORDERS, OTHER, TELLER, OPERATOR = (
    pod("shop", "orders"),
    pod("shop", "x"),
    pod("bank", "teller"),
    pod("rota", "operator"),
)
NONE, READ, MEMBER, ADMIN = (), (Action.READ,), (Action.READ, Action.MEMBER), tuple(Action)


@pytest.mark.parametrize(
    ("principal", "group_id", "allowed"),
    [
        (ORDERS, "shop.orders", ADMIN),
        (OTHER, "shop.orders", MEMBER),
        (OTHER, "shop.", MEMBER),
        (OTHER, "shop", NONE),
        (OTHER, "shopping.orders", NONE),
        (OTHER, "Shop.orders", NONE),
        (OTHER, "", NONE),
        (OTHER, "*", NONE),
        (OTHER, "bank.g", NONE),
        (ORDERS, "legacy", MEMBER),
        (OTHER, "legacy", NONE),
        # A token or certificate of the tokens file does not make a pod of that name its holder.
        (TELLER, "shop.orders", NONE),
        (TELLER, "bank.g", MEMBER),
        (OPERATOR, "bank.g", ADMIN),
        (OPERATOR, "anything", ADMIN),
        (Principal("robot"), "shop.orders", READ),
        (Principal("robot"), "robot.g", NONE),
        (Principal("system:serviceaccount:bank:teller"), "shop.orders", MEMBER),
        (Principal("system:serviceaccount:bank:teller"), "bank.g", NONE),
    ],
)
def test_who_may_do_what_with_a_group(principal: Principal, group_id: str, allowed: Sequence[Action]) -> None:
    assert tuple(each for each in Action if POLICY.may(principal, each, group_id)) == allowed


@pytest.mark.parametrize(
    ("namespace", "group_id", "is_allowed"),
    [
        ("shop", "shop.orders", True),
        ("shop", "legacy", True),
        ("bank", "legacy", False),
        ("bank", "shop.orders", False),
        # Lines with a token or a certificate grant pods nothing.
        ("bank", "bank.g", True),
        # The operator's own namespace, whose pods may have its account.
        ("rota", "anything", True),
        ("shop", "shop", False),
        ("sho", "shop.orders", False),
    ],
)
def test_a_namespace_has_the_groups_that_one_of_its_pods_may_join(
    namespace: str, group_id: str, is_allowed: bool
) -> None:
    assert POLICY.is_group_of(namespace, group_id) == is_allowed


CONSUME, PRODUCE = (TopicAction.CONSUME,), (TopicAction.CONSUME, TopicAction.PRODUCE)


@pytest.mark.parametrize(
    ("principal", "topic", "allowed"),
    [
        (OTHER, "orders", PRODUCE),
        (ORDERS, "orders", PRODUCE),
        (TELLER, "orders", ()),
        (TELLER, "public-1", CONSUME),
        (OTHER, "public-1", CONSUME),
        (OTHER, "shop.orders", tuple(TopicAction)),
        (OTHER, "shop", ()),
        (OTHER, "shopping.orders", ()),
        (TELLER, "shop.orders", ()),
        (OPERATOR, "orders", CONSUME),
        (OPERATOR, "shop.orders", CONSUME),
        (Principal("robot"), "orders", ()),
    ],
)
def test_a_namespace_owns_its_topics_and_others_are_granted(
    principal: Principal, topic: str, allowed: Sequence[TopicAction]
) -> None:
    assert tuple(each for each in TopicAction if POLICY.may_topic(principal, each, topic)) == allowed


def test_a_namespace_owns_its_transactional_ids() -> None:
    assert POLICY.may_transact(OTHER, "shop.biller-0")
    assert not POLICY.may_transact(TELLER, "shop.biller-0")
    assert not POLICY.may_transact(OTHER, "biller-0")
    assert not POLICY.may_transact(Principal("robot"), "robot.x")


def test_without_a_tokens_file_a_pod_has_the_groups_and_topics_of_its_namespace_only() -> None:
    policy = PodPolicy(lambda _name: None, lambda _name: None, lambda _namespace: ())
    assert policy.may(OTHER, Action.MEMBER, "shop.orders")
    assert not policy.may(OPERATOR, Action.READ, "shop.orders")
    assert policy.may_topic(OTHER, TopicAction.ADMIN, "shop.orders")
    assert not policy.may_topic(OTHER, TopicAction.CONSUME, "orders")


def test_the_most_special_quota_counts() -> None:
    default = Quota()
    assert KNOWN.quota_of(ORDERS.name, default) == default._replace(groups=5, members=7, topics=3)
    assert KNOWN.quota_of(OTHER.name, default) == default._replace(groups=5, members=6, topics=3)
    assert KNOWN.quota_of(OPERATOR.name, default) == default._replace(groups=4, topics=3)
    assert KNOWN.quota_of("robot", default) == default


class Shown(Peer):
    """A caller of a test."""

    def __init__(self, token: str, names: Sequence[str] = ()) -> None:
        self._token = token
        self._names = names

    @override
    def authorization(self) -> Sequence[str]:
        return [f"Bearer {self._token}"] if self._token else []

    @override
    def certificate_names(self) -> Sequence[str]:
        return self._names

    @override
    def address(self) -> str:
        return "ipv4:127.0.0.1"


async def review(token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
    if token != "of-a-pod":
        return {"error": "unknown"}
    extra = {POD_NAME: ["orders-0"], POD_UID: ["11-22"]}
    user = {"username": "system:serviceaccount:shop:orders", "extra": extra}
    return {"authenticated": True, "audiences": list(audiences), "user": user}


def authenticated(known: Principals | None, peer: Peer) -> Principal:
    async def identify(found: Pod) -> Pod:
        return found

    async def body() -> Principal:
        clocks = ReviewClocks(lambda: 0.0, lambda: 0.0)
        reviewer: TokenReviewer[Pod] = TokenReviewer(ReviewPorts(review, identify), clocks)
        return await PodAuthenticator(reviewer, known).authenticate(peer)

    return asyncio.run(body())


def test_a_pod_is_its_service_account() -> None:
    found = authenticated(KNOWN, Shown("of-a-pod"))
    assert found.name == "system:serviceaccount:shop:orders"
    assert found.pod == Pod("shop", "orders-0", "11-22", "orders")
    assert found.pod_name == "shop/orders-0"
    assert found.valid_for_s == 30


def test_other_clients_have_tokens_and_certificates_of_the_tokens_file() -> None:
    assert authenticated(KNOWN, Shown("robot-token")) == Principal("robot")
    certified = Shown("", names=["system:serviceaccounts:bank"])
    assert authenticated(KNOWN, certified) == Principal("system:serviceaccounts:bank")


@pytest.mark.parametrize(
    ("known", "token"), [*itertools.product((KNOWN, None), ("", "unknown", "static-tokens"))]
)
def test_all_others_are_refused(known: Principals | None, token: str) -> None:
    with pytest.raises(Unauthenticated, match="rejects the token" if token else "has no token"):
        authenticated(known, Shown(token, names=["robot"]))
