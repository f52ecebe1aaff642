"""
The identity of a member in its group, as a value to fence on.

A producer sends it with the offsets of its transaction, an external store (`rota.stores`) fences on it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """
    A member in one generation of a group.

    Invariant: (incarnation, generation_id) never decreases while the group's name is in use: a group that is deleted and
    created again counts generations anew, in a higher incarnation. `member_id` distinguishes a restarted static member from
    its predecessor, which it replaces in the same generation.
    """

    group_id: str
    incarnation: int
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
