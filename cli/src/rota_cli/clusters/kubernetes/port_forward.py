"""
Forwards connections to a port of a pod, through the API server: `kubectl port-forward` without a listening port. Used by `page_proxy`.

Each connection is a web socket of its own, so one that breaks takes no other with it. The kubelet connects to the loopback address of
the pod's network.
"""

import socket
from typing import NamedTuple

import websocket
from kubernetes.stream.ws_client import PortForward, create_websocket, get_websocket_url

from rota_cli.clusters.kubernetes.api import Api
from rota_cli.clusters.kubernetes.errors import Asked, failure_of
from rota_cli.clusters.kubernetes.kinds import POD_FORWARD
from rota_cli.errors import NotReachable


class PodPort(NamedTuple):
    """A port of a pod."""

    namespace: str
    pod: str
    port: int


def connect(api: Api, target: PodPort) -> socket.socket:
    """Return a socket that is connected to a pod's port. Raises Failure."""
    asked = Asked("create", POD_FORWARD, target.namespace, target.pod, api.server)
    path = f"/api/v1/namespaces/{target.namespace}/pods/{target.pod}/portforward?ports={target.port}"
    # For the handshake; the connection itself may be silent.
    websocket.setdefaulttimeout(api.timeout_s)
    authorization = api.authorization()
    headers = {"authorization": authorization} if authorization else {}
    try:
        address = get_websocket_url(api.server + path)  # type: ignore[no-untyped-call]
        opened = create_websocket(api.configuration, address, headers)  # type: ignore[no-untyped-call]
    except websocket.WebSocketBadStatusException as error:
        raise failure_of(error.status_code, bytes(error.resp_body or b""), asked) from None
    except (websocket.WebSocketException, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NotReachable(
            f"no connection to port {target.port} of pod {target.namespace}/{target.pod} through {api.server} ({reason}): "
            "check that the API server runs, and the network"
        ) from None
    opened.settimeout(None)
    found: socket.socket = PortForward(opened, [target.port]).socket(target.port)  # type: ignore[no-untyped-call]
    return found
