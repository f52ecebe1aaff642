"""
Binding of static members' instance ids to pods, so that no pod takes the instance of another one.

Pure. `access_control` reports the calls of each pod, and asks for every request that names an instance. An instance belongs to the
first pod that uses it, until that pod has no call or stream in progress, or a new pod of the same name is there: its successor.
"""

from collections import Counter
from collections.abc import Sequence

from rota_coordinator.core.group.answers import Request
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.pod_tokens import Pod, PodRef

# A sidecar uses one.
INSTANCES_OF_POD_MAX = 1_000
Instance = tuple[str, str]  # group id, group instance id


def instances_of(request: Request) -> Sequence[Instance]:
    """Return the instances for which a request speaks."""
    match request:
        case pb.LeaveGroupRequest():
            named = [each for each in request.members if each.HasField("group_instance_id")]
            return [(request.group_id, each.group_instance_id) for each in named]
        case (
            pb.JoinGroupRequest()
            | pb.SyncGroupRequest()
            | pb.HeartbeatRequest()
            | pb.CommitOffsetsRequest()
            | pb.TxnCommitOffsetsRequest()
        ) if request.HasField("group_instance_id"):
            return [(request.group_id, request.group_instance_id)]
        case _:
            return ()


class Instances:
    """
    The instances that pods hold.

    Invariant: each is held by one pod, which has a call in progress, and by the pod that was authenticated last under its name.
    """

    def __init__(self) -> None:
        # Calls in progress by the pod's uid.
        self._calls: Counter[str] = Counter()
        # The pod that was authenticated last under each name, while it has calls in progress.
        self._latest: dict[PodRef, str] = {}
        self._holders: dict[Instance, Pod] = {}
        # Instances by the uid of their holder.
        self._held: dict[str, set[Instance]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def begin_call(self, pod: Pod) -> None:
        """Count an authenticated call of a pod."""
        self._calls[pod.uid] += 1
        self._latest[pod.ref] = pod.uid

    def end_call(self, pod: Pod) -> None:
        """Count the end of a call; with its last one the pod's instances are free."""
        self._calls[pod.uid] -= 1
        if self._calls[pod.uid]:
            return
        del self._calls[pod.uid]
        if self._latest.get(pod.ref) == pod.uid:
            del self._latest[pod.ref]
        for instance in self._held.pop(pod.uid, ()):
            del self._holders[instance]

    def claim(self, instance: Instance, pod: Pod | None) -> bool:
        """Let a pod with a call in progress hold an instance; false if it must not use it. None: a client that is no pod."""
        holder = self._holders.get(instance)
        if holder is not None and pod is not None and holder.uid == pod.uid:
            return self._is_latest(pod)
        if holder is not None and self._is_latest(holder):
            return False
        if pod is None:
            return True
        held = self._held.get(pod.uid, set())
        if not self._is_latest(pod) or len(held) >= INSTANCES_OF_POD_MAX:
            return False
        if holder is not None:
            self._held[holder.uid].discard(instance)
        self._holders[instance] = pod
        self._held.setdefault(pod.uid, set()).add(instance)
        return True

    def _is_latest(self, pod: Pod) -> bool:
        return self._latest.get(pod.ref) == pod.uid
