"""Messages for users of failed fetches, without the name of their partition. Used by `reading.py` and `python_client/fetcher.py`."""

from rota_sidecar.core.delivery.events import FetchError
from rota_sidecar.core.member.partitions import Partition

_MESSAGES = {
    FetchError.OUT_OF_RANGE: (
        "offset {offset} is out of range; reset the group's offsets, or set what the group does with an offset out of range"
    ),
    FetchError.UNKNOWN_TOPIC: "it does not exist; create the topic, or remove it from the group's subscription",
    FetchError.OTHER_TOPIC: (
        "the topic was deleted and recreated, so committed offsets of the old topic are invalid; reset the group's offsets"
    ),
    FetchError.DENIED: "not authorized to read its topic; allow this user to read it",
    FetchError.CORRUPT: (
        "the batch at offset {offset} cannot be read{why}; check the broker's disk, or skip it with "
        "`rota topics delete-records {topic} --partition {partition} --before OFFSET`, which deletes all records before "
        "that offset"
    ),
}


def message_of(fetch_error: FetchError, partition: Partition, offset: int, why: str = "") -> str:
    """Return the message of a fetch that failed at an offset, with the reason if it is known."""
    return _MESSAGES[fetch_error].format(
        offset=offset, topic=partition.topic, partition=partition.number, why=f" ({why})" if why else ""
    )
