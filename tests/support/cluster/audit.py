"""
Requests of pods to the API server, as its own audit log records them.

The API server writes one line for each request of a service account, but those of Kubernetes' own controllers. `Cluster.requests`
reads them; the rest of the requests, such as those of tests, is not recorded.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LOG, POLICY = "audit.log", "audit-policy.json"
ACCOUNT = "system:serviceaccount:"
RULES = (
    {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
    {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
    {"level": "None"},
)
FORBIDDEN, CREATED = 403, 201


class Request(NamedTuple):
    """One request of a service account. Invariant: `resource` and `path` are not both empty."""

    # As NAMESPACE/NAME.
    account: str
    verb: str
    # As GROUP/RESOURCE, with /SUBRESOURCE; empty for a path of no resource.
    resource: str
    # Empty: of the cluster, or of all namespaces.
    namespace: str
    name: str
    code: int
    path: str

    @property
    def verbs(self) -> tuple[str, ...]:
        """Return the verbs that RBAC has to grant: a server-side apply that has created an object needs two."""
        return (self.verb, "create") if (self.verb, self.code) == ("patch", CREATED) else (self.verb,)


def flags(folder: Path) -> list[str | Path]:
    """Write the policy; return the API server's flags."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": RULES,
    }
    (folder / POLICY).write_text(json.dumps(policy))
    return ["--audit-policy-file", folder / POLICY, "--audit-log-path", folder / LOG]


def requests(folder: Path, namespace: str) -> Iterator[Request]:
    """Yield the requests of a namespace's service accounts, in the order in which the API server has answered them."""
    user = f"{ACCOUNT}{namespace}:"
    with (folder / LOG).open() as lines:
        for line in lines:
            # The API server may be writing the last one.
            if not line.endswith("\n"):
                break
            # Parsing a line costs more than looking for a word.
            if user in line and (event := json.loads(line))["user"]["username"].startswith(user):
                yield request_of(event)


def request_of(event: Any) -> Request:  # noqa: ANN401  parsed JSON
    """Return the request of an audit event."""
    of = event.get("objectRef", {})
    parts = (of.get("apiGroup", ""), of.get("resource", ""), of.get("subresource", ""))
    return Request(
        account=event["user"]["username"].removeprefix(ACCOUNT).replace(":", "/"),
        verb=event["verb"],
        resource="/".join(parts).rstrip("/"),
        namespace=of.get("namespace", ""),
        name=of.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        path=event["requestURI"],
    )
