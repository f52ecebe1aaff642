"""
What a folder of manifests wants, all together: groups, the workloads that consume or produce, and what these are told.

Everything is looked at before anything is refused, and what belongs together is looked for.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_operator.manifests.documents import Document, InvalidManifest, Wrong
from rota_operator.manifests.workloads import Container, Metadata, Texts, WorkloadSpec
from rota_operator.spec.model import GROUP, KIND, VERSION, ConsumerGroupSpec
from rota_operator.spec.validation import InvalidSpec, Path, dotted, read_part, read_spec

WORKLOADS = ("Deployment", "StatefulSet")
# Kinds whose names become values of labels; and of files and sockets, whose paths cannot be long.
LABELLED = (KIND, *WORKLOADS)
LABEL_LENGTH_MAX = 63
API_VERSIONS = {
    KIND: f"{GROUP}/{VERSION}",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Secret": "v1",
    "ConfigMap": "v1",
}


class Name(NamedTuple):
    """Of one resource, among those of its kind."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Group:
    """A ConsumerGroup."""

    name: Name
    spec: ConsumerGroupSpec
    document: Document

    @property
    def group_id(self) -> str:
        """As it is used."""
        return self.spec.group_id or ".".join(self.name)


@dataclass(frozen=True)
class Workload:
    """Replicas of one pod."""

    name: Name
    kind: str
    spec: WorkloadSpec
    document: Document


@dataclass(frozen=True)
class Manifests:
    """All resources, each under its name."""

    groups: Mapping[Name, Group] = field(default_factory=dict)
    workloads: Mapping[Name, Workload] = field(default_factory=dict)
    secrets: Mapping[Name, Mapping[str, bytes]] = field(default_factory=dict, repr=False)
    config_maps: Mapping[Name, Mapping[str, str]] = field(default_factory=dict)


def gather(documents: Sequence[Document]) -> Manifests:
    """Raises InvalidManifest with all that is wrong."""
    gathering = _Gathering()
    for document in documents:
        gathering.add(document)
    gathering.check()
    if gathering.wrong:
        raise InvalidManifest(gathering.wrong)
    return Manifests(gathering.groups, gathering.workloads, gathering.secrets, gathering.config_maps)


class _Gathering:
    """Manifests so far, and all that is wrong."""

    def __init__(self) -> None:
        self.groups: dict[Name, Group] = {}
        self.workloads: dict[Name, Workload] = {}
        self.secrets: dict[Name, Mapping[str, bytes]] = {}
        self.config_maps: dict[Name, Mapping[str, str]] = {}
        self.wrong: list[Wrong] = []
        self._seen: set[tuple[str, Name]] = set()

    def add(self, document: Document) -> None:
        """One resource."""
        try:
            self._add(document)
        except InvalidSpec as invalid:
            self.wrong += [document.wrong(problem.path, problem.sentence) for problem in invalid.problems]

    def _add(self, document: Document) -> None:
        kind, value = document.kind, document.value
        wanted = API_VERSIONS.get(kind)
        if wanted is None:
            what = f'unsupported kind "{kind}"' if kind else "kind is required"
            self._say(document, ("kind",), f"{what}; expected one of {', '.join(API_VERSIONS)}")
        elif value.get("apiVersion") != wanted:
            self._say(document, ("apiVersion",), f"apiVersion of a {kind} must be {wanted}")
        elif (name := self._name(document)) is not None:
            self._add_kind(document, kind, name)

    def _name(self, document: Document) -> Name | None:
        metadata = read_part(Metadata, document.value.get("metadata", {}), ("metadata",))
        if metadata.name is None:
            self._say(document, ("metadata", "name"), "metadata.name is required")
            return None
        if document.kind in LABELLED and len(metadata.name) > LABEL_LENGTH_MAX:
            too_long = (
                f"metadata.name must have at most {LABEL_LENGTH_MAX} characters, like every label value"
            )
            self._say(document, ("metadata", "name"), too_long)
            return None
        name = Name(metadata.namespace, metadata.name)
        if (document.kind, name) in self._seen:
            self._say(
                document, ("metadata", "name"), f"{_called(document.kind, name)} is defined twice; remove one"
            )
            return None
        self._seen.add((document.kind, name))
        return name

    def _add_kind(self, document: Document, kind: str, name: Name) -> None:
        if kind == KIND:
            self._check_fields(document, "spec", "status")
            self.groups[name] = Group(name, read_spec(document.value.get("spec", {})), document)
        elif kind in WORKLOADS:
            self._check_fields(document, "spec", "status")
            spec = read_part(WorkloadSpec, document.value.get("spec", {}), ("spec",))
            self._add_workload(Workload(name, kind, spec, document))
        else:
            held = {
                each: said
                for each, said in document.value.items()
                if each not in ("apiVersion", "kind", "metadata")
            }
            texts = read_part(Texts, held, ())
            if kind == "Secret":
                self.secrets[name] = self._secret(document, texts)
            else:
                self.config_maps[name] = texts.data

    def _add_workload(self, workload: Workload) -> None:
        """Refuse a second one of that name: files, sockets and reports of replicas are told apart without kind and namespace."""
        other = next((each for each in self.workloads.values() if each.name.name == workload.name.name), None)
        if other is None:
            self.workloads[workload.name] = workload
            return
        taken = f"metadata.name is in use by {_called(other.kind, other.name)}, whose replicas have the same names"
        remedy = "rename one, or run them separately, each with its own --home"
        self._say(workload.document, ("metadata", "name"), f"{taken}; {remedy}")

    def _secret(self, document: Document, texts: Texts) -> Mapping[str, bytes]:
        found = {key: text.encode() for key, text in texts.string_data.items()}
        for key, text in texts.data.items():
            try:
                found.setdefault(key, base64.b64decode(text, validate=True))
            except ValueError:
                # What it is must not be shown.
                self._say(
                    document,
                    ("data", key),
                    f"data.{key} must be base64; encode it, or use stringData",
                )
        return found

    def _check_fields(self, document: Document, *known: str) -> None:
        for name in document.value.keys() - {"apiVersion", "kind", "metadata", *known}:
            self._say(document, (name,), f"{name} is an unknown field; correct its name or remove it")

    # What belongs together

    def check(self) -> None:
        """What is named is there, and belongs to one alone."""
        if self.wrong:
            # What could not be read would be missed.
            return
        self._check_targets()
        self._check_group_ids()
        for workload in self.workloads.values():
            for number, container in enumerate(workload.spec.template.spec.containers):
                path: Path = ("spec", "template", "spec", "containers", number)
                self._check_container(workload, container, path)

    def _check_targets(self) -> None:
        taken: dict[tuple[str, Name], Name] = {}
        for name, group in self.groups.items():
            target = group.spec.scale_target_ref
            if target is None:
                continue
            place = Name(name.namespace, target.name)
            found = self.workloads.get(place)
            path = ("spec", "scaleTargetRef", "name")
            other = taken.setdefault((target.kind, place), name)
            if found is None or found.kind != target.kind:
                self._say(
                    group.document,
                    path,
                    f"{dotted(path)}: {_called(target.kind, place)} not found",
                )
            elif other != name:
                taken_by = f"{_called(target.kind, place)} already consumes for {_called(KIND, other)}"
                self._say(group.document, path, f"{dotted(path)}: {taken_by}; use another workload")

    def _check_group_ids(self) -> None:
        taken: dict[tuple[tuple[str, ...], str], Name] = {}
        for name, group in self.groups.items():
            other = taken.setdefault((group.spec.bootstrap_servers, group.group_id), name)
            if other != name:
                used = f"spec.groupId {group.group_id} is already used by {_called(KIND, other)}"
                self._say(group.document, ("spec", "groupId"), f"{used}; choose another one")

    def _check_container(self, workload: Workload, container: Container, path: Path) -> None:
        for asked in keys_of(container):
            place = Name(workload.name.namespace, asked.name)
            held = self.secrets.get(place) if asked.kind == "Secret" else self.config_maps.get(place)
            if wrong := _wrong_with(asked, place, held):
                at = (*path, *asked.path)
                self._say(workload.document, at, f"{dotted(at)}: {wrong}")

    def _say(self, document: Document, path: Path, sentence: str) -> None:
        self.wrong.append(document.wrong(path, sentence))


class Asked(NamedTuple):
    """What a container wants of a Secret or a ConfigMap; no key: all of them."""

    kind: str
    name: str
    key: str | None
    optional: bool
    path: Path


def keys_of(container: Container) -> Iterator[Asked]:
    """All that it wants."""
    for number, source in enumerate(container.env_from):
        for kind, word, whole in (
            ("Secret", "secretRef", source.secret_ref),
            ("ConfigMap", "configMapRef", source.config_map_ref),
        ):
            if whole is not None:
                yield Asked(kind, whole.name, None, whole.optional, ("envFrom", number, word))
    for number, variable in enumerate(container.env):
        if (source_of := variable.value_from) is None:
            continue
        for kind, word, part in (
            ("Secret", "secretKeyRef", source_of.secret_key_ref),
            ("ConfigMap", "configMapKeyRef", source_of.config_map_key_ref),
        ):
            if part is not None:
                yield Asked(kind, part.name, part.key, part.optional, ("env", number, "valueFrom", word))


def _wrong_with(asked: Asked, place: Name, held: Mapping[str, str | bytes] | None) -> str:
    """Why what is asked for cannot be had, in a sentence; empty: it can, or need not."""
    called = _called(asked.kind, place)
    if held is None:
        return "" if asked.optional else f"{called} not found"
    if asked.key is not None and asked.key not in held:
        return "" if asked.optional else f"key {asked.key} not found in {called}"
    keys = held if asked.key is None else [asked.key]
    if with_nul := [key for key in keys if isinstance(value := held[key], bytes) and 0 in value]:
        listed = ", ".join(with_nul)
        return f"{called} has NUL in {listed}, which environment variables cannot hold; use other keys"
    return ""


def _called(kind: str, name: Name) -> str:
    return f"{kind} {name.name} in namespace {name.namespace}"
