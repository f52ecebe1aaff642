"""
Generates the CustomResourceDefinition of ConsumerGroup from the declared models.

`scripts/generate_crds.py` writes it to `crds/`, and `make check` compares.
"""

from collections.abc import Mapping
from typing import Any

from rota_operator.spec.model import GROUP, KIND, VERSION, ConsumerGroupSpec
from rota_operator.spec.scalars import INT_OR_STRING
from rota_operator.spec.schema import SpecModel
from rota_operator.spec.status import ConsumerGroupStatus

Schema = dict[str, Any]
PLURAL = "consumergroups"
# JSON schema keywords that a structural schema supports, in the order in which they are written.
SCHEMA_KEYWORDS = (
    "description", "type", "format", INT_OR_STRING, "default", "enum", "pattern", "minLength", "maxLength", "minimum", "exclusiveMinimum",
    "maximum", "minItems", "maxItems", "maxProperties", "required", "items", "properties",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
)  # fmt: skip
PRINTER_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Members", "integer", ".status.members", 0),
    ("Partitions", "integer", ".status.partitions", 0),
    ("Lag", "integer", ".status.lag.total", 0),
    ("Lag-Seconds", "integer", ".status.lag.maxSeconds", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Desired", "integer", ".status.desiredReplicas", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Generation", "integer", ".status.generation", 1),
    ("Group", "string", ".status.groupId", 1),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 1),
)


def definition() -> Schema:
    """Return the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "plural": PLURAL, "singular": KIND.lower(), "shortNames": ["cg"]},
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": schema_of(ConsumerGroupSpec),
        "status": schema_of(ConsumerGroupStatus),
    }
    schema = {
        "description": "A consumer group: members that share the partitions of one or more topics.",
        "type": "object",
        "required": ["spec"],
        "properties": properties,
    }
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
            for name, kind, path, priority in PRINTER_COLUMNS
        ],
    }


def schema_of(part: type[SpecModel]) -> Schema:
    """Return the structural schema of a model: no references, only keywords that the API server supports."""
    found = part.model_json_schema(by_alias=True)
    return _StructuralSchemas(
        found.get("$defs", {}), {each.__name__: each for each in _nested_models(part)}
    ).of(found)


def _nested_models(part: type[SpecModel]) -> list[type[SpecModel]]:
    """Return the model and, recursively, all models of its fields."""
    found = [part]
    for field in part.model_fields.values():
        for each in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(each, type) and issubclass(each, SpecModel):
                found += _nested_models(each)
    return found


class _StructuralSchemas:
    """Converts JSON schemas to structural schemas."""

    def __init__(self, defs: Mapping[str, Schema], parts: Mapping[str, type[SpecModel]]) -> None:
        self._defs = defs
        self._parts = parts

    def of(self, schema: Mapping[str, Any]) -> Schema:
        """Convert a schema, recursively."""
        whole = self._whole(schema)
        found = {word: whole[word] for word in SCHEMA_KEYWORDS if word in whole}
        if "default" in found:
            found["default"] = _without_nulls(found["default"])
        if found.get("default", ...) is None:
            del found["default"]
        if "const" in whole:
            found["enum"] = [whole["const"]]
        if "exclusiveMinimum" in found:
            found["minimum"], found["exclusiveMinimum"] = found["exclusiveMinimum"], True
        if "items" in found:
            found["items"] = self.of(found["items"])
        if found.get("type") == "object":
            self._add_fields(found, whole)
        return found

    def _whole(self, schema: Mapping[str, Any]) -> Schema:
        """Resolve references and optional types."""
        whole = dict(schema)
        if "anyOf" in whole:
            (kind,) = (each for each in whole.pop("anyOf") if each != {"type": "null"})
            whole = {**kind, **whole} if "$ref" in kind else {**whole, **kind}
        if "$ref" in whole:
            # The field's description takes precedence over its model's; the model has the name.
            kind = self._defs[whole.pop("$ref").rpartition("/")[2]]
            whole = {**kind, **whole, "title": kind["title"]}
        return whole

    def _add_fields(self, found: Schema, whole: Schema) -> None:
        values = whole.get("additionalProperties")
        if "properties" in found:
            found["properties"] = {name: self.of(each) for name, each in found["properties"].items()}
            part = self._parts[whole["title"]]
            rules = [{"rule": each.cel, "message": each.message} for each in part.rules]
            rules += [{"rule": each.cel, "message": each.message} for each in part.transition_rules]
            if rules:
                found["x-kubernetes-validations"] = rules
        elif isinstance(values, dict):
            found["additionalProperties"] = self.of(values)
        else:
            found["x-kubernetes-preserve-unknown-fields"] = True


def _without_nulls(default: object) -> object:
    """Remove null values: an optional field is absent, not null."""
    if isinstance(default, dict):
        return {name: _without_nulls(value) for name, value in default.items() if value is not None}
    return default
