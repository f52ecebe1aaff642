"""Settings of a query that belongs to a group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota_spark.core.options import RECORDS_MAX, InvalidOption

SIDECAR_VARIABLE = "ROTA_SIDECAR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    Settings of `rota_spark.process`.

    With `sidecar` the query belongs to the member of a running sidecar, which has group, topics and timeouts of its own. Without
    it the query starts a sidecar, for `group_id` and `topics`. Executors read at `bootstrap_servers` in both cases.
    """

    # `rota://host:port` for Rota's log, `host:port` for Kafka.
    bootstrap_servers: str
    group_id: str = ""
    topics: Sequence[str] = ()
    # Address of a running sidecar; None: that of ROTA_SIDECAR, if it is set.
    sidecar: str | None = None
    client_id: str = "spark"
    # Records of a micro-batch, over all partitions.
    max_records_per_batch: int = 100_000
    # Seconds of a micro-batch; later batches become smaller when one takes longer. At most half of the rebalance timeout.
    max_batch_seconds: float = 150.0
    # Input partitions of a micro-batch; 0: Spark's default parallelism.
    input_partitions: int = 0
    # Seconds to wait for the group's first assignment.
    start_within_seconds: float = 60.0
    # Folder of the checkpoint, which is made anew for each run of the query; empty: the system's folder for temporary files.
    checkpoint_folder: str = ""
    # Further flags of the sidecar that is started, such as --session-timeout-ms=10000.
    sidecar_flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("max_records_per_batch", "input_partitions"):
            value, least = getattr(self, name), name == "max_records_per_batch"
            if not least <= value <= RECORDS_MAX:
                raise InvalidOption(f"{name} is {value}: use an integer from {int(least)} to {RECORDS_MAX:,}")
        for name in ("max_batch_seconds", "start_within_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidOption(f"{name} is {getattr(self, name)}: use a number of seconds above 0")
        if not self.bootstrap_servers:
            raise InvalidOption(
                'bootstrap_servers is empty: set it to "rota://host:7070", or to Kafka\'s "host:9092"'
            )

    def running_sidecar(self, variables: Mapping[str, str]) -> str:
        """Return the address of the running sidecar; empty: the query starts one. Raises InvalidOption."""
        found = variables.get(SIDECAR_VARIABLE, "") if self.sidecar is None else self.sidecar
        if not found and not (self.group_id and self.topics):
            raise InvalidOption(
                f"neither sidecar nor {SIDECAR_VARIABLE} names a running sidecar, and group_id or topics is empty: set them, "
                "so that the query can start a sidecar of its own"
            )
        return found
