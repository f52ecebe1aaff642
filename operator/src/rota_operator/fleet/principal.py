"""Identity of a sidecar, as its token proves it. Produced by an authenticator, used by the Fleet server and its owner."""

from dataclasses import dataclass
from typing import NamedTuple


class SidecarRef(NamedTuple):
    """The sidecar of a pod, or of a replica of the local runner. At one time there is at most one pod of a name."""

    namespace: str
    pod: str


@dataclass(frozen=True, slots=True)
class Principal:
    """
    An authenticated sidecar.

    Invariant: every field is known from the token and from the API server, none from a report.
    """

    sidecar: SidecarRef
    # The group that its reports are about.
    group_id: str
    # Of the pod: a successor of the same name has another one.
    uid: str = ""
    # Of the ConsumerGroup, as namespace/name.
    group: str = ""
    # Seconds for which this may be relied on; then the token is authenticated again. None: as long as the stream lasts.
    valid_for_s: float | None = None

    def is_same(self, other: "Principal") -> bool:
        """Return whether both are the same sidecar of the same group."""
        return (self.sidecar, self.uid, self.group_id, self.group) == (
            other.sidecar,
            other.uid,
            other.group_id,
            other.group,
        )
