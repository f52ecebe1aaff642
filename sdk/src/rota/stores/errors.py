"""Errors of external stores; each message is one line: the failure, then the remedy."""

from rota.errors import RotaError
from rota.metadata import GroupMetadata

# (topic, partition number); a `rota.TopicPartition` is one.
Partition = tuple[str, int]


def named(partition: Partition) -> str:
    """Format a partition as Kafka's tools do."""
    topic, index = partition
    return f"{topic}-{index}"


class StoreError(RotaError):
    """The store refused an operation, and stored nothing of it."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


class StoreFenced(StoreError):
    """A newer owner has raised the fence in the store: nothing that this one did since is stored."""

    def __init__(
        self, group: GroupMetadata, partition: Partition, token: tuple[int, int], member_id: str
    ) -> None:
        incarnation, generation = token
        super().__init__(
            f"partition {named(partition)} of group {group.group_id} belongs to member {member_id} of (incarnation "
            f"{incarnation}, generation {generation}), and this is member {group.member_id} of (incarnation "
            f"{group.incarnation}, generation {group.generation_id}): discard the batch, nothing of it was stored; "
            "this member is no longer the owner"
        )
        self.partition = partition
        self.incarnation = incarnation
        self.generation = generation
        self.member_id = member_id


class OwnerReplaced(StoreFenced):
    """Another producer of the partition was initialized: nothing that this one sent since is stored. Its owner is not known here."""

    def __init__(self, group: GroupMetadata, partition: Partition) -> None:
        StoreError.__init__(
            self,
            f"partition {named(partition)} of group {group.group_id} was fenced: another member than {group.member_id} has "
            "assigned it, or the transaction has timed out; discard the batch, nothing of it was stored; if this member still owns "
            "the partition, assign and restore it again",
        )
        self.partition = partition
        self.incarnation = self.generation = -1
        self.member_id = ""


class PositionMoved(StoreError):
    """The stored position is not the one that this owner has written."""

    def __init__(self, partition: Partition, stored: int | None, expected: int | None) -> None:
        super().__init__(
            f"the store has {_offset(stored)} for partition {named(partition)}, where this owner left "
            f"{_offset(expected)}: a commit whose answer was lost has taken effect, or another program changed it; discard the "
            "batch, assign again, and continue from the new position"
        )
        self.partition = partition


class OffsetWentBack(StoreError):
    """An offset is below the stored one, and `rewind` was not set."""

    def __init__(self, partition: Partition, stored: int, given: int) -> None:
        super().__init__(
            f"offset {given} for partition {named(partition)} is below the stored offset {stored}: nothing of the "
            "batch was stored; pass rewind=True to process records again"
        )
        self.partition = partition


class NotAssigned(StoreError):
    """The store has no fence of this owner for the partition."""

    def __init__(self, group_id: str, partition: Partition) -> None:
        super().__init__(
            f"partition {named(partition)} of group {group_id} is not assigned to this owner in the store: call "
            "assign with it before its first batch"
        )
        self.partition = partition


class TransactionLost(StoreError):
    """The transaction ended inside its block."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"the transaction of group {group_id} failed or ended inside its block, so the offsets are not "
            "saved: let SQL errors leave the block, and do not commit or roll back inside"
        )


class StateUnreadable(StoreError):
    """A partition of a state topic cannot be read to its end."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            f"{topic}-{partition} shows no committed record from offset {offset} on: a transaction is open there, which ends by itself "
            "after its transaction_timeout_ms, or the server does not answer; assign again"
        )


def _offset(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"
