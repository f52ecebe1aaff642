"""Plans are opened and written for many topics at once; the result is that of one topic after the other."""

from random import Random

import pytest
from hypothesis import given, settings

from rota_sidecar.core.assignors.built_in import built_in
from rota_sidecar.core.assignors.flat_assignment import FlatAssignment
from rota_sidecar.core.assignors.model import Group, Plan, Subscriber, Topic
from rota_sidecar.core.consumer_protocol.assignment import Assignment, decode_assignment, encode_assignment
from rota_sidecar.core.consumer_protocol.wire import TopicHeaders
from tests.sidecar.core.assignors.groups import groups

STRATEGIES = built_in(100)
EXAMPLES = settings(max_examples=40, derandomize=True)


def check(plan: Plan) -> None:
    heads = TopicHeaders()
    for lists in plan.values():
        one_by_one = {topic: list(lists[topic]) for topic in lists}
        assert {topic: list(numbers) for topic, numbers in lists.items()} == one_by_one
        written = encode_assignment(Assignment(lists), heads)
        assert written == encode_assignment(Assignment(one_by_one))
        found = decode_assignment(written).partitions
        assert {topic: list(numbers) for topic, numbers in found.items()} == one_by_one


@pytest.mark.parametrize("strategy", STRATEGIES)
@EXAMPLES
@given(group=groups())
def test_every_plan_is_opened_and_written_as_one_topic_at_a_time(strategy: str, group: Group) -> None:
    check(STRATEGIES[strategy].assign(group))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_so_are_plans_in_which_members_have_one_partition_of_each_topic(strategy: str) -> None:
    chance = Random(7)
    for _ in range(30):
        members = chance.randint(2, 9)
        topics = {
            f"t{number}": Topic(members + chance.randint(-1, 1)) for number in range(chance.randint(1, 9))
        }
        subscribers = {f"m{number}": Subscriber(list(topics)) for number in range(members)}
        check(STRATEGIES[strategy].assign(Group(subscribers, topics)))


def test_members_with_one_partition_of_each_topic_share_the_names() -> None:
    members = {f"m{number}": Subscriber(["t", "u"]) for number in range(3)}
    plan = STRATEGIES["sticky"].assign(Group(members, {"t": Topic(3), "u": Topic(3)}))
    found = [lists.one_of_each() for lists in plan.values() if isinstance(lists, FlatAssignment)]
    assert [numbers for _, numbers in filter(None, found)] == [[0, 0], [1, 1], [2, 2]]
    assert len({id(names) for names, _ in filter(None, found)}) == 1
