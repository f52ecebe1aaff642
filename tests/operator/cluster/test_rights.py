"""The guide names the rights with which the operator runs in the test cluster."""

import re

from tests.support.cluster.rota_manifests import RULES, SPARK_RULES
from tests.support.tree import REPO


def test_the_guide_lists_the_rights_that_the_operator_has_in_tests() -> None:
    guide = (REPO / "docs" / "guide" / "operator.md").read_text()
    section = guide[guide.index("## Rights") : guide.index("## Health")]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and "---" not in line and "API group" not in line
    ]
    listed = {
        (
            group.strip("`"),
            tuple(re.findall("`([^`]+)`", resources)),
            tuple(verbs.partition(";")[0].split(", ")),
        )
        for group, resources, verbs in rows
    }
    assert listed == {*RULES, *SPARK_RULES}
