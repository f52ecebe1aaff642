"""The metrics of docs/reference/metrics.md, to compare pages that processes serve with."""

import re
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.support.tree import REPO

# Metrics of Spark's queries: tests/spark has them, for no other application reports a query.
OF_QUERIES = frozenset({"rota_query_batch_seconds", "rota_query_rows_per_second", "rota_query_rows_total"})
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)


def labels_by_name() -> Mapping[str, frozenset[str]]:
    """Return the labels of each documented metric, by its name."""
    page = (REPO / "docs/reference/metrics.md").read_text()
    return {name: frozenset(re.findall(r"\w+", labels)) for name, _, labels in ROW.findall(page)}


def undocumented(page: str) -> set[str]:
    """Return the metrics of a page that have no entry, or a label that the entry does not have."""
    known = labels_by_name()
    return {
        name
        for family in text_string_to_metric_families(page)
        for name in [family.name + ("_total" if family.type == "counter" else "")]
        for sample in family.samples
        if not sample.labels.keys() - {"le"} <= known.get(name, {"no entry"}) or name not in known
    }
