"""
Kubeconfigs of service accounts: for programs that run on this machine, as in a pod, with the rights of one.

Called by what starts other operators beside a cluster. The login is a token, because some clients read no keys like those of the cluster's own.
"""

import json
from pathlib import Path

from tests.support.cluster.cluster import Cluster

DURATION = "24h"


def write_login(file: Path, cluster: Cluster, account: str, namespace: str, server: str = "") -> None:
    """Write the kubeconfig of a service account; `server` is the API server's address, by default the one for this machine's network."""
    token = cluster.kubectl("create", "token", account, f"--namespace={namespace}", f"--duration={DURATION}")
    given = json.loads(cluster.kubectl("config", "view", "--raw", "--output=json"))
    [known] = given["clusters"]
    if server:
        known["cluster"]["server"] = server
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [known],
        "users": [{"name": account, "user": {"token": token.strip()}}],
        "contexts": [{"name": account, "context": {"cluster": known["name"], "user": account}}],
        "current-context": account,
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
