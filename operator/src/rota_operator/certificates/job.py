"""
A run of the Job: reads the Secrets, issues what is missing or expires, and writes what has changed. Called by `__main__`.

The Secrets exist: the chart makes them without data, so that this process needs no right to create any. The authority is written
before anything that it has issued; a write that another run has overtaken fails, and Kubernetes starts the Job again.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rota_operator.certificates.openssl import Openssl, Pair
from rota_operator.certificates.options import ServerSecret
from rota_operator.certificates.rotation import AuthorityStep, Certificate, authority_step, renewal_reason
from rota_operator.cluster.api import Api
from rota_operator.cluster.kinds import ResourceKind
from rota_service.event_log import EventLog

SECRET = ResourceKind("v1", "Secret", "secrets")
CERTIFICATE, KEY, BUNDLE = "tls.crt", "tls.key", "ca.crt"
# Of the authority's Secret only.
NEXT_CERTIFICATE, NEXT_KEY, FORMER = "next.crt", "next.key", "former.crt"
# A field of a Secret; None: without it.
Data = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority's Secret. Invariant: `current` has its key; so has `successor`, if there is one."""

    current: Pair
    successor: Pair | None = None
    # Certificate of the authority before; its certificates may still be in use.
    former: bytes | None = None

    def data(self) -> Data:
        """Return the Secret's data."""
        return {
            CERTIFICATE: self.current.certificate,
            KEY: self.current.key,
            NEXT_CERTIFICATE: None if self.successor is None else self.successor.certificate,
            NEXT_KEY: None if self.successor is None else self.successor.key,
            FORMER: self.former,
        }

    def bundle(self) -> bytes:
        """Return the certificates that clients trust, the issuing one first."""
        successor = None if self.successor is None else self.successor.certificate
        return b"".join(
            each.rstrip() + b"\n" for each in (self.current.certificate, successor, self.former) if each
        )


class CertificatesRun:
    """A run, at one time."""

    def __init__(self, api: Api, folder: Path, now_s: float, event_log: EventLog) -> None:
        self._api = api
        self._openssl = Openssl(folder)
        self._now_s = now_s
        self._event_log = event_log

    async def run(self, namespace: str, authority: str, servers: Sequence[ServerSecret], days: int) -> None:
        """Issue what is due. Raises ApiError, OpensslFailed."""
        version, data = await self._read(namespace, authority)
        found = self._next_authority(data, authority)
        await self._write(namespace, authority, version, data, found.data())
        for each in servers:
            version, data = await self._read(namespace, each.name)
            wanted = self._server_data(data, each, found, days)
            await self._write(namespace, each.name, version, data, wanted)

    def _next_authority(self, data: Data, name: str) -> Authority:
        current, successor = self._pair(data, CERTIFICATE, KEY), self._pair(data, NEXT_CERTIFICATE, NEXT_KEY)
        step = authority_step(self._certificate(current), self._certificate(successor), self._now_s)
        if step is not AuthorityStep.KEEP:
            self._event_log.info("authority", f"{name}: {step.value} the certificate authority")
        if current is None or step is AuthorityStep.CREATE:
            return Authority(self._openssl.new_authority(), former=self._unexpired(data.get(CERTIFICATE)))
        known = Authority(current, successor, self._unexpired(data.get(FORMER)))
        if step is AuthorityStep.ANNOUNCE:
            return replace(known, successor=self._openssl.new_authority())
        if step is AuthorityStep.SUCCEED and successor is not None:
            return Authority(successor, former=current.certificate)
        return known

    def _server_data(self, data: Data, server: ServerSecret, authority: Authority, days: int) -> Data:
        pair = self._pair(data, CERTIFICATE, KEY)
        issuer = authority.current
        reason = renewal_reason(
            self._certificate(pair),
            frozenset(server.dns_names),
            is_issued_by_authority=pair is not None
            and self._openssl.is_issued_by(pair.certificate, issuer.certificate),
            now_s=self._now_s,
        )
        if pair is None or reason:
            self._event_log.info("issued", f"{server.name}: a certificate was issued: {reason}")
            pair = self._openssl.issue(issuer, server.dns_names[0], server.dns_names, days)
        return {CERTIFICATE: pair.certificate, KEY: pair.key, BUNDLE: authority.bundle()}

    def _pair(self, data: Data, certificate: str, key: str) -> Pair | None:
        """Return a certificate that has its key; None if one of them is missing, or they do not belong together."""
        found = data.get(certificate), data.get(key)
        if found[0] is None or found[1] is None:
            return None
        pair = Pair(found[0], found[1])
        return pair if self._openssl.has_key(pair) else None

    def _certificate(self, pair: Pair | None) -> Certificate | None:
        return None if pair is None else self._openssl.read(pair.certificate)

    def _unexpired(self, certificate: bytes | None) -> bytes | None:
        found = None if certificate is None else self._openssl.read(certificate)
        return certificate if found is not None and found.is_valid(self._now_s) else None

    async def _read(self, namespace: str, name: str) -> tuple[str, Data]:
        """Return a Secret's version and data."""
        secret = await self._api.get(SECRET, namespace, name)
        data = {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}
        return secret["metadata"]["resourceVersion"], data

    async def _write(self, namespace: str, name: str, version: str, data: Data, wanted: Data) -> None:
        """Write what differs, into the version that was read."""
        changed = {key: value for key, value in wanted.items() if data.get(key) != value}
        if not changed:
            return
        await self._api.patch(
            SECRET,
            namespace,
            name,
            {
                "metadata": {"resourceVersion": version},
                "data": {
                    key: None if value is None else b64encode(value).decode()
                    for key, value in changed.items()
                },
            },
        )
        self._event_log.info("written", f"{name}: {', '.join(sorted(changed))} written")
