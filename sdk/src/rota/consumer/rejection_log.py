"""Log of rejected verdicts: one warning for each partition. The sidecar counts all of them."""

import logging

from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.consumer")


class RejectionLog:
    """Logs rejected verdicts of one consumer, or of the handlers of one process."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, int]] = set()

    def log(self, delivery: pb.DeliverResponse) -> None:
        """Log the first rejection of each partition as a warning; later ones at DEBUG."""
        for refusal in delivery.refusals:
            partition = refusal.partition.topic, refusal.partition.partition
            level = logging.DEBUG if partition in self._logged else logging.WARNING
            self._logged.add(partition)
            log.log(
                level,
                "the sidecar rejected a verdict on %s[%d]: %s (logged once per partition; rota_records_total "
                'counts all with verdict="refused")',
                *partition,
                refusal.message,
            )
