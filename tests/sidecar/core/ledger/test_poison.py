"""A record that crashes its application each time ends as a dead letter, and no other record does."""

import pytest

from rota_sidecar.core.ledger.batches import Ordering
from tests.sidecar.core.ledger.pod import Case, Pod

CASES = [
    *(Case(ordering, pod_dies=pod_dies) for ordering in Ordering for pod_dies in (False, True)),
    *(Case(Ordering.PARTITION, pod_dies=pod_dies, takes_many=False) for pod_dies in (False, True)),
]
SEEDS = 5
# Retries, and as many again until it is found among its neighbours, and is alone.
DEATHS_MAX = 20


@pytest.mark.soak("ledger")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_record_that_kills_is_the_one_that_becomes_a_dead_letter(case: Case, seed: int) -> None:
    for number in range(seed * SEEDS, (seed + 1) * SEEDS):
        pod = Pod(case, number)
        pod.run(DEATHS_MAX)
        assert pod.dead_letters == [pod.poison], number
