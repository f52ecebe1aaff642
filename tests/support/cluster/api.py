"""
Reads of a cluster's API over one connection: most of what tests ask, over and over, while they wait for something.

Used by `Cluster.get`, in the words of `kubectl get`, which costs ten times as much. What a user types is typed: `Cluster.kubectl`.
"""

import http.client
import json
import ssl
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from tests.support.cluster.kubectl import KubectlFailed

TIMEOUT_S = 60
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Kind(NamedTuple):
    """A kind of resource that the API server serves."""

    prefix: str
    """Path of its group and version."""
    plural: str
    name: str
    is_namespaced: bool

    def path(self, name: str, namespace: str) -> str:
        """Path of one of its resources; of all of a namespace without a name."""
        scope = f"/namespaces/{namespace}" if self.is_namespaced else ""
        return f"{self.prefix}{scope}/{self.plural}" + (f"/{name}" if name else "")


class ApiReader:
    """Reads resources. One connection, which is opened again when the API server has closed it; several threads take turns."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
        address = urlsplit(cluster["server"]).netloc
        self._connection = http.client.HTTPSConnection(address, context=tls, timeout=TIMEOUT_S)
        self._lock = threading.Lock()
        self._kinds: dict[str, Kind] = {}

    def get(self, resource: str, namespace: str, selector: str = "") -> dict[str, Any]:
        """`pod/NAME` as it is stored but for its managed fields, or all of a kind with these labels as a list below `items`."""
        word, _, name = resource.partition("/")
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        with self._lock:
            found = self._read(self._kind(word).path(name, namespace) + query, resource)
        for each in found["items"] if not name else (found,):
            each["metadata"].pop("managedFields", None)
        return found

    def serves(self, word: str) -> bool:
        """Return whether the API server lists a kind of this name: some time after its definition is established."""
        with self._lock:
            try:
                self._kind(word)
            except KubectlFailed:
                return False
        return True

    def close(self) -> None:
        self._connection.close()

    def _kind(self, word: str) -> Kind:
        """The kind by its plural, singular or short name; what is served is asked again for a new word."""
        if word not in self._kinds:
            self._kinds = {}
            for root in ("/api", "/apis"):
                for each in self._read(root, root, accept=DISCOVERY)["items"]:
                    self._note(root, each)
        if word not in self._kinds:
            raise KubectlFailed(f"get {word}: the API server serves no such resource")
        return self._kinds[word]

    def _note(self, root: str, group: dict[str, Any]) -> None:
        name = group["metadata"].get("name", "")
        preferred = group["versions"][0]
        prefix = "/".join(part for part in (root, name, preferred["version"]) if part)
        for each in preferred.get("resources", ()):
            kind = Kind(prefix, each["resource"], each["responseKind"]["kind"], each["scope"] == "Namespaced")
            for word in (each["resource"], each["singularResource"], *each.get("shortNames", ())):
                # Those of the first group: `events` are the old ones, as for kubectl.
                self._kinds.setdefault(word, kind)

    def _read(self, path: str, what: str, *, accept: str = "application/json") -> dict[str, Any]:
        try:
            code, body = self._answer(path, accept)
        except (http.client.RemoteDisconnected, ConnectionError):
            # Closed while it was idle. A read may be sent again.
            code, body = self._answer(path, accept)
        found: dict[str, Any] = json.loads(body)
        if code != http.HTTPStatus.OK:
            raise KubectlFailed(f"get {what}: Error from server ({found['reason']}): {found['message']}")
        return found

    def _answer(self, path: str, accept: str) -> tuple[int, bytes]:
        try:
            self._connection.request("GET", path, headers={"Accept": accept})
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            # Also one that interrupts a test: the next answer would be that of this request.
            self._connection.close()
            raise
