"""
The identity of a member in its group, as a value to fence on.

A producer sends it with the offsets of its transaction, an external store (`rota.stores`) fences on it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """
    A member in one generation of a group.

    (incarnation, generation_id) rises as long as the group's name is used: a group that was deleted and born again
    counts its generations anew, under a higher incarnation. `member_id` tells a static member from its former self,
    whose place it takes in the same generation.
    """

    group_id: str
    incarnation: int
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
