"""
Sidecars of pods that no node runs, as processes of this machine, with the pod's own flags, settings and token. Called by `test_bad_input`.

The operator knows them by their tokens as the sidecars of these pods.
"""

import os
import sys
from pathlib import Path
from queue import SimpleQueue

import grpc

from rota_operator.reconcile.sidecar import TOKEN_AUDIENCE
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from tests.api_server.adopting import WITHIN_S, Shop
from tests.support.cluster.manifests import Manifest
from tests.support.processes import Process, current_owner
from tests.support.tree import python_path
from tests.support.workdir import logs

CONFIG_MAP_FOLDER = "/etc/rota/settings"


def start_sidecar(shop: Shop, pod: Manifest, fleet: str, folder: Path, *packages: Path) -> Process:
    """Start the sidecar of a pod; `packages` are found before the installed ones."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    group = pod["metadata"]["labels"]["rota.dev/consumer-group"]
    for file, text in shop.get(f"configmap/rota-{group}")["data"].items():
        (folder / file).write_text(text)
    token = folder / "token"
    token.write_text(
        shop.kubectl(
            "create", "token", "default", f"--audience={TOKEN_AUDIENCE}", "--bound-object-kind=Pod",
            f"--bound-object-name={name}", f"--bound-object-uid={uid}",
        ).strip()
    )  # fmt: skip
    here = [
        f"--listen-socket={folder}/app.sock", "--http-listen=127.0.0.1:0", f"--state-folder={folder}/member",
        f"--fleet={fleet}", f"--token-file={token}", "--log-format=text",
    ]  # fmt: skip
    flags = [
        each.replace("$(POD_NAME)", name).replace(CONFIG_MAP_FOLDER, str(folder))
        for each in pod["spec"]["initContainers"][0]["args"]
    ]
    replaced = {each.partition("=")[0] for each in here}
    flags = [each for each in flags if each.partition("=")[0] not in replaced]
    path = os.pathsep.join([*map(str, packages), python_path()])
    command = [sys.executable, "-m", "rota_sidecar", *flags, *here]
    log = logs(folder) / "sidecar.log"
    return Process.start("sidecar", command, log=log, owner=current_owner(), env={"PYTHONPATH": path})


def attach_once(folder: Path) -> None:
    """Attach to the sidecar of this folder as an application that ends at once: the sidecar of a pod does not join before."""
    requests: SimpleQueue[pb.AttachRequest | None] = SimpleQueue()
    requests.put(pb.AttachRequest(hello=pb.AttachRequest.Hello(client_id="ends-at-once")))
    with grpc.insecure_channel(f"unix:{folder}/app.sock") as channel:
        for response in ConsumerStub(channel).Attach(
            iter(requests.get, None), wait_for_ready=True, timeout=WITHIN_S
        ):
            if response.HasField("attached"):
                requests.put(pb.AttachRequest(goodbye=pb.AttachRequest.Goodbye()))
                requests.put(None)


def distribution(folder: Path, name: str, version: str, **files: str) -> Path:
    """Create the files that pip installs; return the folder they are in."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (info / file).write_text(text)
    return folder
