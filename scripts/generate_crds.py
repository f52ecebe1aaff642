"""
Writes what is generated from the declaration of ConsumerGroup in rota_operator.spec: the CRD, and its two reference pages.

`--check` only compares. Called by make.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from rota_operator.plan.settings import ISOLATION
from rota_operator.plan.supported import IGNORED_FIELDS, UNSUPPORTED_FIELDS, Backend
from rota_operator.spec import crd
from rota_operator.spec.conditions import DOCUMENTED, ConditionType
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import Path as FieldPath
from rota_operator.spec.validation import dotted

ROOT = Path(__file__).parents[1]
CRD = ROOT / "crds" / "consumergroups.yaml"
# Helm reads no file outside of a chart.
CHART_CRD = ROOT / "charts" / "rota" / "files" / "consumergroups.yaml"
PAGE = ROOT / "docs" / "reference" / "consumergroup.md"
CONDITIONS = ROOT / "docs" / "reference" / "conditions.md"
EFFECTS = ROOT / "tests" / "operator" / "effects.yaml"
HEAD = "# Generated from operator/src/rota_operator/spec by `make crds`; do not edit.\n"
PAGE_HEAD = """<!-- Generated from operator/src/rota_operator/spec by `make crds`; do not edit. -->
# ConsumerGroup API reference

`apiVersion: rota.dev/v1alpha1`, `kind: ConsumerGroup`. A ConsumerGroup is validated as a whole before anything is started or
changed; every error names the path of its field. The [quickstart](../quickstart.md) has a small example, the
[guides](../guide/groups.md) explain groups, offsets and delivery.

The last two columns are about [`rota up`](../guide/laptop.md) and about Kubernetes: **works**; **not yet**: not implemented, so
values other than the default are rejected; **ignored**: applies to pods and is ignored for local processes.

| field of `spec` | default | values | description | on a laptop | in a cluster |
|---|---|---|---|---|---|
"""
RULES_HEAD = """
## Validation rules

"""
EFFECTS_HEAD = """
## Tests of each field

For each field that works on a laptop or in a cluster, a test of what it does there.

| field of `spec` | on a laptop | in a cluster |
|---|---|---|
"""
CONDITIONS_HEAD = """<!-- Generated from operator/src/rota_operator/spec by `make crds`; do not edit. -->
# Conditions of a ConsumerGroup

`kubectl get consumergroup NAME -o yaml` shows them in `status.conditions`. Each has one of the reasons below; the list is closed, so
scripts may compare them. `Ready` is True only while every partition has an owner that makes progress; what is not known makes a
condition Unknown, never True. A remark is a restriction under which the group runs: it stands in the message, behind its reason.

A sidecar that does not report is unknown after 5 s. A change of a condition is written at once, other changes of the status at
most every 10 s.
"""
Schema = dict[str, Any]


class Plain(yaml.SafeDumper):
    """YAML without anchors and aliases."""

    @override
    def ignore_aliases(self, data: object) -> bool:
        """Return True for all data."""
        return True


def resource() -> str:
    """Return the CRD as YAML."""
    return HEAD + yaml.dump(crd.definition(), Dumper=Plain, sort_keys=False, width=120, allow_unicode=True)


def page() -> str:
    """Return the reference page of the fields."""
    spec = crd.schema_of(ConsumerGroupSpec)
    rows = [
        f"| `{dotted(path)}` | {default_of(given)} | {values_of(leaf)} | {leaf.get('description', '')} "
        f"| {support_of(path, Backend.LOCAL)} | {support_of(path, Backend.CLUSTER)} |"
        for path, leaf, given in leaves(spec, (), spec.get("default"))
    ]
    rules = [f"* {where}{message}" for where, message in wrong_in(spec, ())]
    parts = (PAGE_HEAD, rows), (RULES_HEAD, rules), (EFFECTS_HEAD, list(effects()))
    return "".join(head + "\n".join(lines) + "\n" for head, lines in parts)


def conditions_page() -> str:
    """Return the page of conditions: a table of reasons for each type."""
    lines = [CONDITIONS_HEAD]
    for kind in ConditionType:
        lines.append(f"## {kind}\n\n| status | reason | meaning |\n|---|---|---|")
        lines += [
            f"| {each.statuses or 'remark'} | `{each.reason}` | {each.meaning} |"
            for each in DOCUMENTED
            if each.type is kind
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def effects() -> Iterator[str]:
    """Yield a line for each field that has a test of its effect."""
    for field, columns in yaml.safe_load(EFFECTS.read_text()).items():
        laptop, cluster = (link_of(columns.get(backend, "")) for backend in ("laptop", "cluster"))
        yield f"| `{field}` | {laptop} | {cluster} |"


def link_of(test: str) -> str:
    """Return a link to a test; a reason of a refusal stays as it is."""
    file, separator, name = test.partition("::")
    return f"[`{name}`](../../{file})" if separator else test


def leaves(schema: Schema, path: FieldPath, given: Any) -> Iterator[tuple[FieldPath, Schema, Any]]:  # noqa: ANN401
    """Yield all fields without fields of their own, each with its default value."""
    for name, each in schema["properties"].items():
        # The default of an object takes precedence over the defaults of its fields.
        default = given[name] if isinstance(given, dict) and name in given else each.get("default")
        if "properties" in each:
            yield from leaves(each, (*path, name), default)
        else:
            yield (*path, name), each, default


def default_of(given: object) -> str:
    """Return a default value in the notation of the reference page."""
    return "" if given is None or given in ("", [], {}) else f"`{yaml_of(given)}`"


def yaml_of(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).strip()
    return text.removesuffix("...").strip()


def values_of(leaf: Schema) -> str:
    """Return the accepted values of a field."""
    if "enum" in leaf:
        return ", ".join(f"`{yaml_of(each)}`" for each in leaf["enum"])
    if leaf.get("type") == "array":
        return f"list of {leaf['items'].get('type', 'any')}s"
    if "additionalProperties" in leaf:
        return f"map of {leaf['additionalProperties'].get('type', 'any')}s"
    kind = leaf.get("type", "number or text")
    low, high = leaf.get("minimum"), leaf.get("maximum")
    above = "above" if leaf.get("exclusiveMinimum") else "from"
    bounds = [f"{above} {low}"] if low is not None else []
    return " ".join([kind, *bounds, *([f"to {high}"] if high is not None else [])])


def support_of(path: FieldPath, backend: Backend) -> str:
    """Return the support of a field by a backend."""
    if any(path[: len(each)] == tuple(each) for each in UNSUPPORTED_FIELDS[backend]):
        return "not yet"
    if backend is Backend.LOCAL and any(path[: len(each)] == tuple(each) for each in IGNORED_FIELDS):
        return "ignored"
    return f"works for `{ISOLATION}`" if path == ("config",) else "works"


def wrong_in(schema: Schema, path: FieldPath) -> Iterator[tuple[str, str]]:
    """Yield the validation rules with the fields that they are for."""
    where = f"`{dotted(('spec', *path))}` "
    for rule in schema.get("x-kubernetes-validations", ()):
        yield where, rule["message"]
    for name, each in schema.get("properties", {}).items():
        yield from wrong_in(each, (*path, name))


def main() -> None:
    """Write the files, or compare them with --check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    definition = resource()
    for file, wanted in (
        (CRD, definition),
        (CHART_CRD, definition),
        (PAGE, page()),
        (CONDITIONS, conditions_page()),
    ):
        if not check:
            file.write_text(wanted)
        elif not file.exists() or file.read_text() != wanted:
            sys.exit(f"crds: {file.name} is not what its declaration says; run 'make crds'")
    if check:
        print("crds: ok")


if __name__ == "__main__":
    main()
