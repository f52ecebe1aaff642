"""
Writes docs/reference/metrics.md from the collectors of coordinator, sidecar and operator.

Run as `python -m scripts.generate_metrics_reference`; `--check` only compares. Called by make. Each collector is filled with an
example of everything that it counts and then collected, as a scrape does: the page has what a scrape has. A metric without a
sentence or without an example, and a module with metrics that is not listed here, are refused in a sentence.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric

from rota_coordinator.observability.metrics import Metrics as CoordinatorMetrics
from rota_operator.cluster.metrics import Metrics as OperatorMetrics
from rota_operator.cluster.queues import Key
from rota_operator.spec.conditions import ConditionType
from rota_operator.spec.model import Alerts
from rota_sidecar.core.delivery.events import QueryProgress
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.observability.counters import Counters
from rota_sidecar.observability.metrics import GroupOfMetrics
from rota_sidecar.observability.metrics import Metrics as SidecarMetrics
from rota_sidecar.observability.partition_status import PartitionStatus

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
RUN = "python -m scripts.generate_metrics_reference"
HEAD = f"""<!-- Generated from the collectors of coordinator, sidecar and operator by `{RUN}`; do not edit. -->
# Metrics

Each process serves its metrics at `/metrics`, in Prometheus' text format, at the address of `--http-listen`. A value that is unknown has
no series. A histogram has the series `_bucket` (with the label `le`), `_sum` and `_count`. Prometheus adds labels of its own, such as
`instance`.
"""
OPERATOR = """Only the operator that leads has series of ConsumerGroups; those of a ConsumerGroup end with it. A sidecar knows its group by the group
id alone. To add the ConsumerGroup to its series, join them with `rota_group_info`:

```
max by (namespace, name, group) (rota_group_info) * on (group) group_left sum by (group) (rate(rota_records_total[5m]))
```
"""
SIDECAR = """Series of a partition exist while the member owns it. With `monitoring.granularity` (`--metrics-granularity`) `topic` they have no label
`partition`, with `group` no `topic` either: records are summed, seconds are the maximum, and the time of progress is the oldest. With
`group` histograms have one bucket, `+Inf`: averages can be drawn, quantiles cannot. More on them:
[the sidecar's guide](../guide/sidecar.md#metrics).
"""
COORDINATOR = """Reasons of a rebalance are listed in [the coordinator's guide](../guide/coordinator.md#metrics).
"""
# Modules that create metrics, relative to ROOT.
MODULES = frozenset(
    {
        "coordinator/src/rota_coordinator/observability/metrics.py",
        "operator/src/rota_operator/cluster/metrics.py",
        "sidecar/src/rota_sidecar/observability/metrics.py",
    }
)


class Refused(Exception):
    """A metric cannot be documented; the message names it and says what to do."""


class Documented(NamedTuple):
    """Metric, as the page describes it."""

    # With the suffix of a counter.
    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Connections:
    """Example of a coordinator's connections."""

    admitted: int = 1
    strangers: int = 1
    closed: int = 1


def coordinator() -> Iterable[Metric]:
    """Return the families of a coordinator."""
    return CoordinatorMetrics(lambda: (), Connections).collect()


def sidecar() -> Iterable[Metric]:
    """Return the families of a sidecar with one partition."""
    counters = Counters()
    counters.records["orders", "ack"] = 1
    counters.query.add(QueryProgress(1, 1.0, 1.0))
    status = PartitionStatus(
        position=1,
        committed=1,
        start=0,
        end=1,
        unresolved_ms=None,
        uncommitted_ms=None,
        is_done=True,
        rate=1.0,
        in_flight=0,
        problem="",
        last_progress_ms=1,
    )
    return SidecarMetrics(
        GroupOfMetrics("group"), counters, lambda: [(Partition("orders", 0), status)], lambda: 1.0
    ).collect()


def operator() -> Iterable[Metric]:
    """Return the families of an operator with one ConsumerGroup."""
    metrics = OperatorMetrics()
    metrics.reconciled("success", 1.0)
    status = {
        "groupId": "group",
        "coordination": "Rota",
        "generation": 1,
        "partitions": 1,
        "unownedPartitions": 0,
        "lag": {"total": 0, "maxSeconds": 0},
        "desiredReplicas": 1,
        "scaling": {"neededReplicas": 1},
        "replicas": 1,
        "conditions": [{"type": each.value, "status": "True"} for each in ConditionType],
    }
    metrics.update(Key("shop", "orders"), status, Alerts())
    metrics.scale_decided(Key("shop", "orders"), 1, 2, "LoadAboveTarget")
    return metrics.collect()


def documented(families: Iterable[Metric]) -> Iterator[Documented]:
    """Yield the metrics of a collector by name. Raises Refused."""
    for family in sorted(families, key=lambda each: each.name):
        if not family.documentation.endswith("."):
            raise Refused(f"{family.name} has no sentence that says what it is: give its help text one")
        if not family.samples:
            raise Refused(f"{family.name} has no example: add one to scripts/generate_metrics_reference.py")
        labels = {label: None for sample in family.samples for label in sample.labels if label != "le"}
        suffix = "_total" if family.type == "counter" else ""
        yield Documented(family.name + suffix, family.type, tuple(labels), family.documentation)


def parts() -> Mapping[str, tuple[str, tuple[Documented, ...]]]:
    """Return introduction and metrics of each process. Raises Refused."""
    return {
        "Coordinator": (COORDINATOR, tuple(documented(coordinator()))),
        "Sidecar": (SIDECAR, tuple(documented(sidecar()))),
        "Operator": (OPERATOR, tuple(documented(operator()))),
    }


def unlisted(root: Path) -> list[str]:
    """Return the modules below a root that use prometheus_client and are not in MODULES."""
    found = (
        str(path.relative_to(root))
        for path in root.glob("*/src/**/*.py")
        if "prometheus_client" in path.read_text()
    )
    return sorted(set(found) - MODULES)


def written() -> str:
    """Return the page. Raises Refused."""
    if others := unlisted(ROOT):
        raise Refused(
            f"metrics of {others[0]} are on no page: add its collector to scripts/generate_metrics_reference.py"
        )
    lines = [HEAD]
    for title, (introduction, metrics) in parts().items():
        lines.append(f"## {title}\n\n{introduction}\n| metric | type | labels | meaning |\n|---|---|---|---|")
        for name, kind, labels, meaning in metrics:
            named = ", ".join(f"`{each}`" for each in labels)
            lines.append(f"| `{name}` | {kind} | {named} | {meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or compare it with --check."""
    parser = argparse.ArgumentParser(prog=RUN, description="Write docs/reference/metrics.md.")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    try:
        page = written()
    except Refused as refused:
        print(f"metrics: {refused}", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        print(
            f"metrics: docs/reference/{PAGE.name} is not what the code exports; run '{RUN}'", file=sys.stderr
        )
        return 1
    print("metrics: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
