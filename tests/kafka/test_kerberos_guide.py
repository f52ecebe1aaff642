"""The demonstration of Kerberos in the guide runs as printed, at a KDC and a broker of the test's."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tests.kafka.kerberos_realm import PARTITIONS, TOPIC, allow, kerberized, realm
from tests.support.sidecar import Sidecar
from tests.support.sidecar import running as running_sidecar

pytestmark = pytest.mark.kafka

PAGE = "guide/security.md"
# On the page, beside what they are here.
SERVERS, GROUP, TOPICS = "kafka.example.com:9093", "shop.orders", "orders"
GROUP_HERE = "allowed-orders"


def test_the_keytab_of_the_demonstration_lets_a_sidecar_join(tmp_path: Path) -> None:
    administration, start = [
        block.text for block in blocks(PAGE) if "kadmin.local" in block.text or "GSSAPI" in block.text
    ]
    with kerberized("kerberos") as kafka:
        done = subprocess.run(
            ["/bin/sh", "-ec", administration],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **realm(kafka).administration, "KRB5CCNAME": f"FILE:{tmp_path / 'cache'}"},
        )
        assert done.returncode == 0, done.stderr
        assert "Default principal: orders@ROTA.TEST" in done.stdout
        allow(kafka, "orders")
        _, _, module, *arguments = shlex.split(start.replace("\\\n", " "))
        assert module == "rota_sidecar"
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        assert (given.pop("--bootstrap-servers"), given.pop("--group-id")) == (SERVERS, GROUP)
        assert given.pop("--topics") == TOPICS
        given["--sasl-kerberos-keytab"] = str(tmp_path / given["--sasl-kerberos-keytab"])
        flags = [f"--topics={TOPIC}", *(f"{name}={value}" for name, value in given.items())]
        ours = Sidecar(tmp_path, kafka.bootstrap, GROUP_HERE, flags)
        with running_sidecar(ours):
            ours.wait_until_it_has(PARTITIONS)
            assert ours.terminate() == 0
