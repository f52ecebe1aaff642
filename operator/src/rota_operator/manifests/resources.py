"""
Collects all resources of a set of manifests, and checks references between them.

All errors are collected before the manifests are rejected.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_operator.manifests.documents import Diagnostic, Document, InvalidManifest
from rota_operator.manifests.spark import KIND as SPARK_KIND
from rota_operator.manifests.spark import TEMPLATE as SPARK_TEMPLATE
from rota_operator.manifests.spark import spark_workload_spec
from rota_operator.manifests.workloads import Container, KeyValueData, Metadata, WorkloadSpec
from rota_operator.spec.model import GROUP, KIND, VERSION, ConsumerGroupSpec
from rota_operator.spec.validation import InvalidSpec, Path, dotted, parse_model, parse_spec

WORKLOADS = ("Deployment", "StatefulSet")
# Kinds whose names become label values, and names of files and sockets, whose paths are limited.
LABEL_KINDS = (KIND, *WORKLOADS)
LABEL_LENGTH_MAX = 63
API_VERSIONS = {
    KIND: f"{GROUP}/{VERSION}",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Secret": "v1",
    "ConfigMap": "v1",
}


class NamespacedName(NamedTuple):
    """Namespace and name of a resource, unique within its kind."""

    namespace: str
    name: str


@dataclass(frozen=True)
class ConsumerGroup:
    """A ConsumerGroup resource."""

    name: NamespacedName
    spec: ConsumerGroupSpec
    document: Document

    @property
    def group_id(self) -> str:
        """The group id in use: spec.groupId, or <namespace>.<name>."""
        return self.spec.group_id or ".".join(self.name)


@dataclass(frozen=True)
class Workload:
    """A Deployment or StatefulSet, or the SparkApplications of a ConsumerGroup."""

    name: NamespacedName
    kind: str
    spec: WorkloadSpec
    document: Document


@dataclass(frozen=True)
class Manifests:
    """Resources by name."""

    groups: Mapping[NamespacedName, ConsumerGroup] = field(default_factory=dict)
    workloads: Mapping[NamespacedName, Workload] = field(default_factory=dict)
    secrets: Mapping[NamespacedName, Mapping[str, bytes]] = field(default_factory=dict, repr=False)
    config_maps: Mapping[NamespacedName, Mapping[str, str]] = field(default_factory=dict)


def collect_resources(documents: Sequence[Document]) -> Manifests:
    """Validate documents and return the resources. Raises InvalidManifest with all errors."""
    collector = _Collector()
    for document in documents:
        collector.add(document)
    collector.add_spark_applications()
    collector.check()
    if collector.problem:
        raise InvalidManifest(collector.problem)
    return Manifests(collector.groups, collector.workloads, collector.secrets, collector.config_maps)


class _Collector:
    """Resources collected so far, and all errors."""

    def __init__(self) -> None:
        self.groups: dict[NamespacedName, ConsumerGroup] = {}
        self.workloads: dict[NamespacedName, Workload] = {}
        self.secrets: dict[NamespacedName, Mapping[str, bytes]] = {}
        self.config_maps: dict[NamespacedName, Mapping[str, str]] = {}
        self.problem: list[Diagnostic] = []
        self._seen: set[tuple[str, NamespacedName]] = set()

    def add(self, document: Document) -> None:
        """Validate and add one resource."""
        try:
            self._add(document)
        except InvalidSpec as invalid:
            self.problem += [document.wrong(error.path, error.full_message) for error in invalid.errors]

    def _add(self, document: Document) -> None:
        kind, value = document.kind, document.value
        wanted = API_VERSIONS.get(kind)
        if wanted is None:
            what = f'unsupported kind "{kind}"' if kind else "kind is required"
            self._report(document, ("kind",), f"{what}; expected one of {', '.join(API_VERSIONS)}")
        elif value.get("apiVersion") != wanted:
            self._report(document, ("apiVersion",), f"apiVersion of a {kind} must be {wanted}")
        elif (name := self._name(document)) is not None:
            self._add_kind(document, kind, name)

    def _name(self, document: Document) -> NamespacedName | None:
        metadata = parse_model(Metadata, document.value.get("metadata", {}), ("metadata",))
        if metadata.name is None:
            self._report(document, ("metadata", "name"), "metadata.name is required")
            return None
        if document.kind in LABEL_KINDS and len(metadata.name) > LABEL_LENGTH_MAX:
            too_long = (
                f"metadata.name must have at most {LABEL_LENGTH_MAX} characters, like every label value"
            )
            self._report(document, ("metadata", "name"), too_long)
            return None
        name = NamespacedName(metadata.namespace, metadata.name)
        if (document.kind, name) in self._seen:
            self._report(
                document,
                ("metadata", "name"),
                f"{_describe(document.kind, name)} is defined twice; remove one",
            )
            return None
        self._seen.add((document.kind, name))
        return name

    def _add_kind(self, document: Document, kind: str, name: NamespacedName) -> None:
        if kind == KIND:
            self._check_fields(document, "spec", "status")
            self.groups[name] = ConsumerGroup(name, parse_spec(document.value.get("spec", {})), document)
        elif kind in WORKLOADS:
            self._check_fields(document, "spec", "status")
            spec = parse_model(WorkloadSpec, document.value.get("spec", {}), ("spec",))
            self._add_workload(Workload(name, kind, spec, document))
        else:
            held = {
                each: said
                for each, said in document.value.items()
                if each not in ("apiVersion", "kind", "metadata")
            }
            texts = parse_model(KeyValueData, held, ())
            if kind == "Secret":
                self.secrets[name] = self._secret(document, texts)
            else:
                self.config_maps[name] = texts.data

    def _add_workload(self, workload: Workload) -> None:
        """Reject a second workload of the same name: files and sockets of replicas are named without kind and namespace."""
        other = next((each for each in self.workloads.values() if each.name.name == workload.name.name), None)
        if other is None:
            self.workloads[workload.name] = workload
            return
        taken = f"metadata.name is in use by {_describe(other.kind, other.name)}, whose replicas have the same names"
        remedy = "rename one, or run them separately, each with its own --home"
        self._report(workload.document, ("metadata", "name"), f"{taken}; {remedy}")

    def _secret(self, document: Document, texts: KeyValueData) -> Mapping[str, bytes]:
        found = {key: text.encode() for key, text in texts.string_data.items()}
        for key, text in texts.data.items():
            try:
                found.setdefault(key, base64.b64decode(text, validate=True))
            except ValueError:
                # The value must not be shown.
                self._report(
                    document,
                    ("data", key),
                    f"data.{key} must be base64; encode it, or use stringData",
                )
        return found

    def _check_fields(self, document: Document, *known: str) -> None:
        for name in document.value.keys() - {"apiVersion", "kind", "metadata", *known}:
            self._report(document, (name,), f"{name} is an unknown field; correct its name or remove it")

    # What belongs together

    def add_spark_applications(self) -> None:
        """Add a workload for each group of SparkApplications."""
        for group in self.groups.values():
            if group.spec.spark.enabled:
                try:
                    spec = spark_workload_spec(group.name.name, group.spec.spark)
                except InvalidSpec as invalid:
                    self.problem += [
                        group.document.wrong(error.path, error.full_message) for error in invalid.errors
                    ]
                else:
                    self._add_workload(Workload(group.name, SPARK_KIND, spec, group.document))

    def check(self) -> None:
        """Check references between resources, and that each target and group id is used once."""
        if self.problem:
            # Invalid resources would be reported as missing.
            return
        self._check_targets()
        self._check_group_ids()
        for workload in self.workloads.values():
            for number, container in enumerate(workload.spec.template.spec.containers):
                path: Path = ("spec", "template", "spec", "containers", number)
                self._check_container(workload, container, path)

    def _check_targets(self) -> None:
        taken: dict[tuple[str, NamespacedName], NamespacedName] = {}
        for name, group in self.groups.items():
            target = group.spec.scale_target_ref
            if target is None:
                continue
            target_name = NamespacedName(name.namespace, target.name)
            found = self.workloads.get(target_name)
            path = ("spec", "scaleTargetRef", "name")
            other = taken.setdefault((target.kind, target_name), name)
            if found is None or found.kind != target.kind:
                self._report(
                    group.document,
                    path,
                    f"{dotted(path)}: {_describe(target.kind, target_name)} not found",
                )
            elif other != name:
                taken_by = (
                    f"{_describe(target.kind, target_name)} already consumes for {_describe(KIND, other)}"
                )
                self._report(group.document, path, f"{dotted(path)}: {taken_by}; use another workload")

    def _check_group_ids(self) -> None:
        taken: dict[tuple[tuple[str, ...], str], NamespacedName] = {}
        for name, group in self.groups.items():
            other = taken.setdefault((group.spec.bootstrap_servers, group.group_id), name)
            if other != name:
                used = f"spec.groupId {group.group_id} is already used by {_describe(KIND, other)}"
                self._report(group.document, ("spec", "groupId"), f"{used}; choose another one")

    def _check_container(self, workload: Workload, container: Container, path: Path) -> None:
        for reference in references_of(container):
            named = NamespacedName(workload.name.namespace, reference.name)
            held = self.secrets.get(named) if reference.kind == "Secret" else self.config_maps.get(named)
            if problem := _unresolved_reason(reference, named, held):
                # A SparkApplication has its references in fields of its own.
                at = SPARK_TEMPLATE if workload.kind == SPARK_KIND else (*path, *reference.path)
                self._report(workload.document, at, f"{dotted(at)}: {problem}")

    def _report(self, document: Document, path: Path, message: str) -> None:
        self.problem.append(document.wrong(path, message))


class ObjectKeyRef(NamedTuple):
    """A container's reference to a key of a Secret or ConfigMap, or to all keys (None)."""

    kind: str
    name: str
    key: str | None
    optional: bool
    path: Path


def references_of(container: Container) -> Iterator[ObjectKeyRef]:
    """Yield all references of a container."""
    for number, source in enumerate(container.env_from):
        for kind, word, whole in (
            ("Secret", "secretRef", source.secret_ref),
            ("ConfigMap", "configMapRef", source.config_map_ref),
        ):
            if whole is not None:
                yield ObjectKeyRef(kind, whole.name, None, whole.optional, ("envFrom", number, word))
    for number, variable in enumerate(container.env):
        if (source_of := variable.value_from) is None:
            continue
        for kind, word, part in (
            ("Secret", "secretKeyRef", source_of.secret_key_ref),
            ("ConfigMap", "configMapKeyRef", source_of.config_map_key_ref),
        ):
            if part is not None:
                yield ObjectKeyRef(
                    kind, part.name, part.key, part.optional, ("env", number, "valueFrom", word)
                )


def _unresolved_reason(
    reference: ObjectKeyRef, named: NamespacedName, held: Mapping[str, str | bytes] | None
) -> str:
    """Return the reason why a reference cannot be resolved; empty if it can, or is optional."""
    called = _describe(reference.kind, named)
    if held is None:
        return "" if reference.optional else f"{called} not found"
    if reference.key is not None and reference.key not in held:
        return "" if reference.optional else f"key {reference.key} not found in {called}"
    keys = held if reference.key is None else [reference.key]
    if with_nul := [key for key in keys if isinstance(value := held[key], bytes) and 0 in value]:
        listed = ", ".join(with_nul)
        return f"{called} has NUL in {listed}, which environment variables cannot hold; use other keys"
    return ""


def _describe(kind: str, name: NamespacedName) -> str:
    return f"{kind} {name.name} in namespace {name.namespace}"
