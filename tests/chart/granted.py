"""Rights of service accounts, as the roles and bindings among the chart's objects grant them."""

from collections import defaultdict
from collections.abc import Sequence

from tests.chart.rendered import of_kind
from tests.support.helm import Object

# Service account, where, what -> verbs.
Rights = dict[str, dict[str, dict[str, set[str]]]]
CLUSTER = "all"


def rights(objects: Sequence[Object]) -> Rights:
    """Return what each service account may do."""
    found: Rights = defaultdict(lambda: defaultdict(lambda: defaultdict(set)))
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["rules"]
        for each in of_kind(objects, "Role", "ClusterRole")
    }
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        where = binding["metadata"].get("namespace", "")
        role = binding["roleRef"]
        rules = roles[role["kind"], "" if role["kind"] == "ClusterRole" else where, role["name"]]
        for subject in binding["subjects"]:
            for rule in rules:
                for what in objects_of(rule):
                    found[subject["name"]][where or CLUSTER][what] |= set(rule["verbs"])
    return found


def objects_of(rule: Object) -> list[str]:
    """Return what a rule is about, each as GROUP/RESOURCE or GROUP/RESOURCE=NAME."""
    names = [f"={name}" for name in rule.get("resourceNames", ())] or [""]
    return [
        f"{group}/{resource}{name}"
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in names
    ]
