"""
Size of the JoinGroup response that the group's leader receives, which contains every member's metadata.

Called by the router before a join reaches its group. A leader whose response exceeded the maximum message size would
never receive its generation: it would rejoin without end, and all other members with it.
"""

from rota_coordinator.core.group.members import entry_bytes, instance_of, offered
from rota_coordinator.core.group.state import Group
from rota_proto.coordinator.v1.coordinator_pb2 import JoinGroupRequest

# Bytes of the response apart from its members: four strings of at most 1,024 characters, numbers, and the framing.
REST_BYTES = 32 * 1024
# A member id that the coordinator assigns ends with a hyphen and a UUID.
SUFFIX_BYTES = 37


def join_answer_bytes(group: Group | None, request: JoinGroupRequest) -> int:
    """Return an upper bound, in bytes, of the leader's response once this join is in the group."""
    instance_id = instance_of(request)
    texts = (request.member_id or request.client_id, instance_id or "", instance_id or "")
    ids_bytes = sum(len(text.encode()) for text in texts) + SUFFIX_BYTES
    if group is None:
        return REST_BYTES + entry_bytes(ids_bytes, offered(request))
    holder = group.members.instances.get(instance_id, "") if instance_id is not None else ""
    replaced = group.members.by_id.get(request.member_id or holder)
    if replaced is not None:
        ids_bytes = replaced.ids_bytes
    others_bytes = group.members.sizes.entries - (replaced.entry_bytes if replaced else 0)
    return REST_BYTES + others_bytes + entry_bytes(ids_bytes, offered(request))
