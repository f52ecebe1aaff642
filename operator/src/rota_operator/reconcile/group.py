"""
Reads the ConsumerGroup of an `Observed`: its identity, its validated spec, and the values that its status has pinned.

Called by `plan` before anything else. Of an invalid spec only the identity is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_operator.reconcile.actions import FINALIZER
from rota_operator.reconcile.observed import Claim, Object, WorkloadRef
from rota_operator.reconcile.spark.kinds import KUBEFLOW
from rota_operator.spec.model import ROTA, ConsumerGroupSpec
from rota_operator.spec.validation import parse_spec

KAFKA_COORDINATION, ROTA_COORDINATION = "Kafka", "Rota"


@dataclass(frozen=True, slots=True)
class Identity:
    """Metadata of a ConsumerGroup."""

    namespace: str
    name: str
    uid: str
    # RFC 3339, UTC.
    created: str
    is_deleted: bool
    has_finalizer: bool

    @property
    def objects_name(self) -> str:
        """Name of the objects that the ConsumerGroup owns."""
        return f"rota-{self.name}"


@dataclass(frozen=True, slots=True)
class Group:
    """A ConsumerGroup with a valid spec."""

    identity: Identity
    spec: ConsumerGroupSpec
    group_id: str
    coordination: str

    @property
    def target(self) -> WorkloadRef | None:
        """The workload that consumes."""
        return target_of(self.spec)


def identity_of(resource: Object) -> Identity:
    """Read the metadata of a ConsumerGroup."""
    metadata = resource["metadata"]
    return Identity(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata.get("creationTimestamp", ""),
        is_deleted="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in metadata.get("finalizers", ()),
    )


def group_of(resource: Object) -> Group:
    """Read a ConsumerGroup. Raises InvalidSpec."""
    identity, spec = identity_of(resource), parse_spec(resource.get("spec", {}))
    return Group(identity, spec, group_id_of(identity, spec), coordination_of(spec))


def group_id_of(identity: Identity, spec: ConsumerGroupSpec) -> str:
    """Return the group id: of the spec, else <namespace>.<name>."""
    return spec.group_id or default_group_id(identity)


def default_group_id(identity: Identity) -> str:
    """Return the group id of a ConsumerGroup without spec.groupId."""
    return f"{identity.namespace}.{identity.name}"


def coordination_of(spec: ConsumerGroupSpec) -> str:
    """Return which system coordinates the group."""
    if spec.coordination != "Auto":
        return spec.coordination
    return ROTA_COORDINATION if spec.speaks_rota else KAFKA_COORDINATION


def target_of(spec: ConsumerGroupSpec) -> WorkloadRef | None:
    """Return the workload that spec.scaleTargetRef names."""
    target = spec.scale_target_ref
    return None if target is None else WorkloadRef(target.kind, target.name)


def claim_of(resource: Object) -> Claim:
    """
    Return what a ConsumerGroup claims, also by an invalid spec: it may have been valid when the group adopted its workload.

    Values of a wrong type claim nothing.
    """
    identity, spec = identity_of(resource), _mapping(resource.get("spec"))
    target = _mapping(spec.get("scaleTargetRef"))
    kind, name = _text(target.get("kind", "Deployment")), _text(target.get("name"))
    servers = spec.get("bootstrapServers")
    addresses = [spec.get("coordinatorAddress")] if spec.get("coordinatorAddress") else servers
    return Claim(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        created=identity.created,
        target=WorkloadRef(kind, name) if kind and name else None,
        group_id=_text(spec.get("groupId")) or default_group_id(identity),
        coordinator=tuple(
            sorted(
                {
                    _text(each).removeprefix(ROTA)
                    for each in (addresses if isinstance(addresses, list) else ())
                }
            )
        ),
    )


def spark_version_of(resource: Object) -> str:
    """Return the API version of a ConsumerGroup's SparkApplications, also of an invalid spec; empty: it has none."""
    spark = _mapping(_mapping(resource.get("spec")).get("spark"))
    return _text(spark.get("apiVersion", KUBEFLOW)) if spark.get("enabled") is True else ""


def _mapping(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
