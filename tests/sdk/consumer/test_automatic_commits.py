"""Automatic commits of a real sidecar, as interceptors hear of them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from typing_extensions import override

import rota
from tests.support.coordinator import serving

pytestmark = pytest.mark.process

WAIT_MS = 20_000
RECORDS = 20


class Watcher(rota.ConsumerInterceptor):
    """Keeps the committed offsets, in order."""

    def __init__(self) -> None:
        self.committed: list[int] = []

    @override
    def on_commit(self, offsets: Mapping[rota.TopicPartition, rota.OffsetAndMetadata]) -> None:
        (offset,) = offsets.values()
        self.committed.append(offset.offset)


@pytest.mark.parametrize("itself", [True, False])
def test_an_interceptor_hears_of_the_sidecars_own_commits_and_each_is_durable(
    tmp_path: Path, *, itself: bool
) -> None:
    here = rota.TopicPartition("orders", 0)
    watcher = Watcher()
    with serving(tmp_path) as coordinator:
        server = f"rota://{coordinator.address}"
        rota.create_topics(server, {"orders": 1})
        with rota.Producer(server) as producer:
            producer.send_many("orders", [b"value"] * RECORDS).result(30)
        consumer = rota.Consumer(
            "orders",
            group_id="billing",
            bootstrap_servers=server,
            interceptors=[watcher],
            enable_auto_commit=itself,
            auto_commit_interval_ms=50,
        )
        with consumer:
            returned = 0
            while returned < RECORDS:
                returned += sum(map(len, consumer.poll(timeout_ms=WAIT_MS).values()))
            if itself:
                # Each poll finishes the records before it; the sidecar commits them within the interval.
                while RECORDS not in watcher.committed:
                    consumer.poll(timeout_ms=20)
                assert consumer.committed(here) == RECORDS
            else:
                consumer.poll(timeout_ms=200)
                assert watcher.committed == []
                consumer.commit()
                assert watcher.committed == [RECORDS]
    assert watcher.committed == sorted(watcher.committed)
