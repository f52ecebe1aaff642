"""The Job issues certificates with which servers serve, renews them, and replaces the authority while clients trust both."""

import argparse
import base64
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from rota_operator.certificates.job import (
    BUNDLE,
    CERTIFICATE,
    KEY,
    NEXT_CERTIFICATE,
    CertificatesRun,
)
from rota_operator.certificates.openssl import Openssl, Pair
from rota_operator.certificates.options import ServerSecret, add_flags, server_secret
from rota_operator.certificates.rotation import ANNOUNCE_S, AUTHORITY_DAYS, DAY_S, SUCCEED_BEFORE_S
from rota_operator.cluster.errors import Conflict, NotFound
from rota_service.event_log import open_event_log
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run
from tests.support import certificates
from tests.support.tree import REPO

AUTHORITY = "rota-authority"
SERVERS = (
    ServerSecret("rota-operator-tls", ("rota-operator.rota", "rota-operator.rota.svc")),
    ServerSecret("rota-coordinator-tls", ("rota-coordinator.rota", "*.rota-coordinator-pods.rota")),
)
DAYS = 90
pytestmark = pytest.mark.process
Secrets = dict[str, dict[str, bytes]]


class Cluster:
    """Stands for the API server: Secrets that exist, written by merge patches of the version that was read."""

    def __init__(self, folder: Path) -> None:
        self.secrets: Secrets = {AUTHORITY: {}, **{each.name: {} for each in SERVERS}}
        self.versions = dict.fromkeys(self.secrets, 1)
        self.written: list[str] = []
        self._folder = folder

    def answer(self, sent: Sent) -> Answer:
        name = sent.path.rpartition("/")[2]
        if name not in self.secrets:
            return Answer(404, {"kind": "Status", "message": "not found"})
        if sent.method == "PATCH":
            if sent.body["metadata"]["resourceVersion"] != str(self.versions[name]):
                return Answer(409, {"kind": "Status", "message": "the object has been modified"})
            self._merge(name, sent.body["data"])
        data = {key: base64.b64encode(value).decode() for key, value in self.secrets[name].items()}
        metadata = {"name": name, "resourceVersion": str(self.versions[name])}
        return Answer(200, {"metadata": metadata, "data": data} if data else {"metadata": metadata})

    def _merge(self, name: str, changes: dict[str, str | None]) -> None:
        self.versions[name] += 1
        self.written.append(name)
        for key, value in changes.items():
            if value is None:
                self.secrets[name].pop(key, None)
            else:
                self.secrets[name][key] = base64.b64decode(value)

    def run_at(self, now_s: float, servers: tuple[ServerSecret, ...] = SERVERS) -> list[str]:
        """Run the Job at a time; return the Secrets that it has written."""
        self.written.clear()

        async def story(api: Any) -> None:  # noqa: ANN401
            job = CertificatesRun(api, self._folder, now_s, open_event_log("test", "json"))
            await job.run("rota", AUTHORITY, servers, DAYS)

        run(ApiServer(self.answer), story)
        return list(self.written)


@pytest.fixture(autouse=True)
def unpacked_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL from the cache comes first."""
    for name, value in certificates.prepare().environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.fixture
def openssl(tmp_path_factory: pytest.TempPathFactory) -> Openssl:
    return Openssl(tmp_path_factory.mktemp("openssl"))


def today_s(openssl: Openssl) -> float:
    """Return the time of OpenSSL's clock, which it issues by."""
    found = openssl.read(openssl.new_authority().certificate)
    assert found is not None
    return found.not_before_s


def handshake(server: dict[str, bytes], bundle: bytes, name: str, folder: Path) -> None:
    """Connect a client that trusts the bundle to a server, in memory. Raises SSLError."""
    for file in (CERTIFICATE, KEY):
        (folder / file).write_bytes(server[file])
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    client = ssl.create_default_context(cadata=bundle.decode())
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), serving.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].version() == "TLSv1.3"


def test_empty_secrets_become_certificates_that_clients_accept(
    cluster: Cluster, openssl: Openssl, tmp_path: Path
) -> None:
    assert cluster.run_at(today_s(openssl)) == [AUTHORITY, *(each.name for each in SERVERS)]
    operator, coordinator = (cluster.secrets[each.name] for each in SERVERS)
    assert operator[BUNDLE] == coordinator[BUNDLE] == cluster.secrets[AUTHORITY][CERTIFICATE]
    handshake(operator, operator[BUNDLE], "rota-operator.rota", tmp_path)
    handshake(coordinator, operator[BUNDLE], "rota-coordinator-1.rota-coordinator-pods.rota", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(operator, operator[BUNDLE], "rota-coordinator.rota", tmp_path)


def test_nothing_is_written_while_nothing_is_due(cluster: Cluster, openssl: Openssl) -> None:
    now = today_s(openssl)
    cluster.run_at(now)
    assert cluster.run_at(now) == []
    assert cluster.run_at(now + DAYS * DAY_S / 2) == []


def test_certificates_are_renewed_after_two_thirds_of_their_life(cluster: Cluster, openssl: Openssl) -> None:
    now = today_s(openssl)
    cluster.run_at(now)
    before = {name: dict(data) for name, data in cluster.secrets.items()}
    assert cluster.run_at(now + DAYS * DAY_S * 0.7) == [each.name for each in SERVERS]
    for each in SERVERS:
        assert cluster.secrets[each.name][KEY] != before[each.name][KEY]
        assert cluster.secrets[each.name][BUNDLE] == before[each.name][BUNDLE]


def test_a_server_with_another_name_gets_another_certificate(cluster: Cluster, openssl: Openssl) -> None:
    now = today_s(openssl)
    cluster.run_at(now)
    changed = (ServerSecret(SERVERS[0].name, ("bus-operator.rota",)), SERVERS[1])
    assert cluster.run_at(now, changed) == [SERVERS[0].name]


def test_clients_trust_both_authorities_while_one_succeeds_the_other(
    cluster: Cluster, openssl: Openssl, tmp_path: Path
) -> None:
    now = today_s(openssl)
    cluster.run_at(now)
    server, name = cluster.secrets[SERVERS[0].name], SERVERS[0].dns_names[0]
    first, old = server[BUNDLE], dict(server)
    # The successor is made now, by OpenSSL's clock: the Job's own is ahead of it, so it succeeds at once afterwards.
    late = now + AUTHORITY_DAYS * DAY_S - SUCCEED_BEFORE_S + DAY_S
    assert cluster.run_at(late)[0] == AUTHORITY
    announced = server[BUNDLE]
    assert announced.startswith(first.rstrip())
    assert cluster.secrets[AUTHORITY][NEXT_CERTIFICATE] in announced
    cluster.run_at(late + ANNOUNCE_S)
    assert NEXT_CERTIFICATE not in cluster.secrets[AUTHORITY]
    # A client that has only the announced bundle, with the new certificate, and one that has the last with the old certificate.
    handshake(server, announced, name, tmp_path)
    handshake(old, server[BUNDLE], name, tmp_path)
    assert server[CERTIFICATE] != old[CERTIFICATE]
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, first, name, tmp_path)


@pytest.mark.parametrize("damage", [{KEY: b"no key"}, {CERTIFICATE: b"no certificate"}, {KEY: None}])
def test_a_secret_that_was_damaged_is_mended(
    cluster: Cluster, openssl: Openssl, damage: dict[str, bytes | None], tmp_path: Path
) -> None:
    now = today_s(openssl)
    cluster.run_at(now)
    server = cluster.secrets[SERVERS[0].name]
    for key, value in damage.items():
        server.pop(key)
        if value is not None:
            server[key] = value
    assert cluster.run_at(now) == [SERVERS[0].name]
    handshake(server, server[BUNDLE], SERVERS[0].dns_names[0], tmp_path)


def test_a_key_of_another_pair_is_found(openssl: Openssl) -> None:
    one, other = openssl.new_authority(), openssl.new_authority()
    assert openssl.has_key(one)
    assert not openssl.has_key(Pair(one.certificate, other.key))
    assert openssl.read(b"nothing") is None


def test_a_missing_secret_is_named(cluster: Cluster, openssl: Openssl) -> None:
    del cluster.secrets[SERVERS[1].name]
    with pytest.raises(NotFound, match="Secret rota/rota-coordinator-tls not found"):
        cluster.run_at(today_s(openssl))


def test_a_run_that_was_overtaken_writes_nothing(cluster: Cluster, openssl: Openssl) -> None:
    answer = cluster.answer

    def overtaken(sent: Sent) -> Answer:
        if sent.method == "PATCH":
            cluster.versions[AUTHORITY] += 1
        return answer(sent)

    cluster.answer = overtaken  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        cluster.run_at(today_s(openssl))
    assert cluster.written == []


def test_the_flag_of_a_certificate() -> None:
    assert server_secret("a=b,c") == ServerSecret("a", ("b", "c"))
    for wrong in ("a", "a=", "=b"):
        with pytest.raises(Exception, match="expected SECRET=NAME"):
            server_secret(wrong)


def test_the_guide_lists_every_flag() -> None:
    guide = (REPO / "docs" / "guide" / "operator.md").read_text()
    listed = set(re.findall(r"`(--[a-z-]+)`", guide[guide.index("## Certificates") :]))
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    assert listed == {each for action in parser._actions for each in action.option_strings}
