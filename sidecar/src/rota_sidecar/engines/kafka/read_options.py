"""Options of the clients that read Kafka's records, and their callback for outages. Used by `reading.py` and `python_client`."""

from collections.abc import Callable
from dataclasses import dataclass

from rota_sidecar.engines.records import UNLIMITED, FetchLimits

OnOutage = Callable[[str], None]
"""Callback on the event loop: the reason when an outage begins, once; an empty string when it is over."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of the consumer."""

    # Sent to the brokers; the consumer does not join this group.
    group_id: str
    read_committed: bool
    # Batches have the keys of their records.
    with_keys: bool
    limits: FetchLimits = UNLIMITED
