"""
`kubectl rota ui`: the web page of the operator, on a local port.

The Lease says which pod leads; each request of the browser goes to its page through the API server, with a bearer token of the caller.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from rota_cli.clusters.clocks import system_clocks
from rota_cli.commands.flags import with_flags
from rota_cli.commands.kubectl.api_flags import NAME, ApiFlags, Target
from rota_cli.commands.kubectl.operator_lease import LeaseFlags, find_lease, full_name
from rota_cli.diagnosis.cluster_checks import parse_lease
from rota_cli.errors import Failure, WrongUsage
from rota_cli.output.console import print_err, print_out

if TYPE_CHECKING:
    import http.client

    from rota_cli.clusters.kubernetes.api import Api
    from rota_cli.clusters.kubernetes.page_proxy import PageProxy, Upstream

# The operator's --page-listen.
PAGE_PORT = 7084
PORT_MAX = 65_535
# Of tokens for the page, which nothing else accepts; renewed after half of their time.
AUDIENCE, TOKEN_S = "rota-page", 3_600
# For which a leader is believed to lead: a browser asks for many files at a time.
LEADER_VALID_S = 2.0


@dataclass(frozen=True, slots=True)
class PageFlags:
    """Flags of the page."""

    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show the ConsumerGroups of all namespaces.")
    ] = False
    port: Annotated[
        int,
        typer.Option(
            "--port", help="Local port of the page.", min=0, max=PORT_MAX, show_default="any free one"
        ),
    ] = 0
    service_account: Annotated[
        str,
        typer.Option(
            "--service-account",
            help="Service account, as NAME or NAMESPACE/NAME, whose token is requested and shown to the operator.",
            show_default="the bearer token of the kubeconfig",
        ),
    ] = ""  # fmt: skip
    page_port: Annotated[
        int,
        typer.Option("--page-port", help="Port of the operator's --page-listen.", min=1, max=PORT_MAX),
    ] = PAGE_PORT  # fmt: skip


@with_flags
def ui(flags: ApiFlags, lease: LeaseFlags, page: PageFlags) -> None:
    """Serve the operator's web page on a local port until Ctrl-C, read-only, and print its URL."""
    target = flags.open()
    with target.api as api, suppress(KeyboardInterrupt):
        query = "" if page.all_namespaces else "?" + urlencode({"namespace": target.namespace})
        leader = Leader(api, lease, system_clocks().monotonic_s)
        credentials = Credentials(target, page.service_account, system_clocks().monotonic_s)
        from rota_cli.clusters.kubernetes.page_proxy import Upstream, check

        upstream = Upstream(
            lambda: connection(api, lease, leader.pod(), page.page_port), credentials.authorization
        )
        check(upstream, f"/api/state{query}")
        with open_proxy(page.port, upstream) as proxy:
            thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
            thread.start()
            print_err(f"the page of pod {leader.pod()}, until Ctrl-C; the URL is valid for this run only:")
            print_out(proxy.url + query)
            try:
                threading.Event().wait()
            finally:
                proxy.shutdown()


def open_proxy(port: int, upstream: "Upstream") -> "PageProxy":
    """Listen on the local port. Raises Failure."""
    from rota_cli.clusters.kubernetes.page_proxy import PageProxy

    try:
        return PageProxy(port, upstream)
    except OSError as error:
        raise Failure(
            f"port {port} cannot be listened on ({error.strerror}): choose another with --port"
        ) from None


def connection(api: "Api", lease: LeaseFlags, pod: str, port: int) -> "http.client.HTTPConnection":
    """Return a connection to the page of a pod. Raises Failure."""
    import http.client

    from rota_cli.clusters.kubernetes.port_forward import PodPort, connect

    made = http.client.HTTPConnection(pod, port)
    made.sock = connect(api, PodPort(lease.operator_namespace, pod, port))
    return made


class Leader:
    """Name of the pod that leads, by the Lease; called from several threads."""

    def __init__(self, api: "Api", lease: LeaseFlags, monotonic_s: Callable[[], float]) -> None:
        self._api = api
        self._lease = lease
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._pod, self._until_s = "", 0.0

    def pod(self) -> str:
        """Return the name of the pod. Raises Failure."""
        with self._lock:
            if self._monotonic_s() >= self._until_s:
                self._pod = self._read()
                self._until_s = self._monotonic_s() + LEADER_VALID_S
            return self._pod

    def _read(self) -> str:
        if not self._lease.likely_name:
            raise WrongUsage("--operator-lease must not be empty: the Lease names the pod that leads")
        found = find_lease(self._api, self._lease)
        # The identity is the name of the pod and an id for each term.
        pod = parse_lease(found).holder.rpartition("_")[0]
        if not NAME.fullmatch(pod):
            raise Failure(
                f"Lease {full_name(found)} is not held, so no operator leads: see `kubectl get pods -n "
                f"{self._lease.operator_namespace}`"
            )
        return pod


class Credentials:
    """Header Authorization for the page: the caller's own token, or one of a service account; called from several threads."""

    def __init__(self, target: Target, service_account: str, monotonic_s: Callable[[], float]) -> None:
        self._target = target
        namespace, _, name = service_account.rpartition("/")
        self._namespace, self._name = namespace or target.namespace, name
        for each in (self._namespace, name or None):
            if each is not None and not NAME.fullmatch(each):
                raise WrongUsage(
                    f'--service-account "{service_account}" is not a valid name: expected NAME or NAMESPACE/NAME'
                )
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._token, self._renewed_s = "", 0.0

    def authorization(self) -> str:
        """Return the header. Raises Failure."""
        with self._lock:
            return f"Bearer {self._requested()}" if self._name else self._own()

    def _own(self) -> str:
        found = self._target.api.authorization()
        if not found.lower().startswith("bearer "):
            raise Failure(
                f"{self._target.source} has no bearer token, which is all that the operator can have reviewed: name a "
                "service account with --service-account"
            )
        return found

    def _requested(self) -> str:
        if not self._token or self._monotonic_s() >= self._renewed_s + TOKEN_S / 2:
            self._token = self._target.api.create_token(self._namespace, self._name, AUDIENCE, TOKEN_S)
            self._renewed_s = self._monotonic_s()
        return self._token
