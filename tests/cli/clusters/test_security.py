"""`rota` shows who it is, and trusts whom it was told to trust."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.support.certificates import Authority
from tests.support.coordinator import QUICK, serving

pytestmark = pytest.mark.process

TOKENS = """\
looker plain:right-token read:* consume:*
owner plain:owners-token admin:* topics:*
"""


@dataclass(frozen=True)
class Secured:
    """A server behind TLS, which knows two tokens."""

    address: str
    authority: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    server = authority.issue("coordinator")
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    flags = [*QUICK, f"--tls-cert={server.certificate}", f"--tls-key={server.key}", f"--tokens-file={tokens}"]
    with serving(folder, flags) as coordinator:
        yield Secured(f"rota://{coordinator.address}", authority.certificate)


def test_a_token_opens_what_it_was_granted_and_nothing_else(secured: Secured, tmp_path: Path) -> None:
    rota = Rota(secured.address, tmp_path)
    looker, owner = tmp_path / "looker", tmp_path / "owner"
    for file, token in ((looker, "right-token"), (owner, "owners-token")):
        file.touch(mode=0o600)
        file.write_text(f"{token}\n")
    as_owner = {"ROTA_TLS_CA": str(secured.authority), "ROTA_TOKEN_FILE": str(owner)}
    assert rota("topics", "create", "orders", environment=as_owner).code == 0
    reset = ("groups", "reset", "shop", "--to-latest", "--topic", "orders", "--execute")
    assert rota(*reset, environment=as_owner).code == 0

    as_looker = ("--tls-ca", str(secured.authority), "--token-file", str(looker))
    assert rota("groups", "lag", "shop", *as_looker).code == 0
    refused = rota(*reset, *as_looker)
    assert (refused.code, "GROUP_AUTHORIZATION_FAILED" in refused.error) == (1, True)


def test_an_unknown_or_untrusted_client_gets_a_message(secured: Secured, tmp_path: Path) -> None:
    rota = Rota(secured.address, tmp_path)
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong-token")
    unknown = rota("groups", "list", "--tls-ca", str(secured.authority), "--token-file", str(wrong))
    assert (unknown.code, "rejected the credentials" in unknown.error) == (1, True)
    foreign = Authority(tmp_path / "foreign").certificate
    distrusted = rota("groups", "list", "--tls-ca", str(foreign))
    assert (distrusted.code, "is not trusted: check" in distrusted.error) == (1, True)
    in_the_open = rota("groups", "list")
    assert (in_the_open.code, "whether it requires TLS (--tls-ca)" in in_the_open.error) == (3, True)
