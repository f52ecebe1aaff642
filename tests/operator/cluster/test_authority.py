"""The certificate authority of Rota's servers is passed on as its file has it, and an invalid version changes nothing."""

import asyncio
from pathlib import Path

import pytest

from rota_operator.cluster import authority
from rota_operator.cluster.authority import AuthorityFile
from rota_service.server_certificates import CertificateError
from tests.support.certificates import Authority

pytestmark = pytest.mark.process
WITHIN_S = 60


def test_each_version_of_the_file_is_read_and_an_invalid_one_is_reported_once(tmp_path: Path) -> None:
    former, successor = (Authority(tmp_path / name).certificate.read_bytes() for name in ("a", "b"))
    file, warnings = tmp_path / "ca.crt", list[str]()
    file.write_bytes(former)
    found = AuthorityFile(file, warnings.append)
    assert (found.pem, found.reload()) == (former, False)
    file.write_bytes(former + successor)
    assert (found.reload(), found.text) == (True, (former + successor).decode())
    for content in (b"", b"-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"):
        file.write_bytes(content)
        assert [found.reload(), found.reload()] == [False, False]
    file.unlink()
    assert found.reload() is False
    assert found.pem == former + successor
    problems = ("is not a PEM file", "contains no readable certificate", "cannot be read")
    for problem, warning in zip(problems, warnings, strict=True):
        assert problem in warning
        assert warning.endswith("; the previous certificate authority stays in use")
    file.write_bytes(successor)
    assert found.reload()
    # Another file with the same content.
    file.unlink()
    file.write_bytes(successor)
    assert not found.reload()


def test_a_change_is_noticed_while_the_operator_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "PERIOD_S", 0.01)
    former, successor = (Authority(tmp_path / name).certificate.read_bytes() for name in ("a", "b"))
    file = tmp_path / "ca.crt"
    file.write_bytes(former)

    async def story() -> None:
        found, changed = AuthorityFile(file, print), asyncio.Event()
        following = asyncio.create_task(found.follow(changed.set))
        file.write_bytes(successor)
        await changed.wait()
        assert found.pem == successor
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def test_without_a_file_the_authority_is_the_systems_and_a_missing_one_is_said(tmp_path: Path) -> None:
    found = AuthorityFile(None, print)
    assert (found.pem, found.text, found.reload()) == (None, "", False)
    with pytest.raises(CertificateError, match=r"none\.crt cannot be read \(No such file or directory\)"):
        AuthorityFile(tmp_path / "none.crt", print)
